-- What must be known of a plan to do without it while nothing changes: which Millstream made it, and whether the query asks
-- for the time, so that the stream table may change with no source changed.

ALTER TABLE millstream.stream_tables ADD COLUMN planned_by text, ADD COLUMN asks_clock boolean;
COMMENT ON COLUMN millstream.stream_tables.planned_by IS 'The version stamp of the planner that its blocks are of; NULL where that is not known';
COMMENT ON COLUMN millstream.stream_tables.asks_clock IS 'Its query asks what time it is; NULL where that is not known';
