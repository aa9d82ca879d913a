-- A cancelled refresh has not failed; transient errors are counted separately.

ALTER TABLE millstream.refresh_history DROP CONSTRAINT refresh_history_status_check;
ALTER TABLE millstream.refresh_history ADD CONSTRAINT refresh_history_status_check
    CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED'));

ALTER TABLE millstream.stream_tables ADD COLUMN transient_errors integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN millstream.stream_tables.transient_errors IS 'Refreshes in a row that failed for a reason that passes by itself; they never suspend it';
ALTER TABLE millstream.stream_tables ADD COLUMN last_transient_error text;
COMMENT ON COLUMN millstream.stream_tables.last_transient_error IS 'The last of these; NULL after a refresh that succeeded';
