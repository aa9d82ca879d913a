-- Properties of a plan that make it unnecessary while nothing changes: which version of Millstream made it, and whether
-- the query reads the clock, so that the stream table may change without a change of a source.

ALTER TABLE millstream.stream_tables ADD COLUMN planned_by text, ADD COLUMN asks_clock boolean;
COMMENT ON COLUMN millstream.stream_tables.planned_by IS 'The version stamp of the planner that its blocks are of; NULL where that is not known';
COMMENT ON COLUMN millstream.stream_tables.asks_clock IS 'Its query asks what time it is; NULL where that is not known';
