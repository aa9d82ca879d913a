-- How refreshes end: when one that failed is tried again.

ALTER TABLE millstream.stream_tables ADD COLUMN failed_tries integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN millstream.stream_tables.failed_tries IS 'Refreshes in a row that failed or were skipped, for whatever reason; decides next_try_at';
