-- Outcomes of refreshes: the time of the next try after a failure.

ALTER TABLE millstream.stream_tables ADD COLUMN failed_tries integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN millstream.stream_tables.failed_tries IS 'Refreshes in a row that failed or were skipped, for whatever reason; decides next_try_at';

-- A running refresh has an entry RUNNING, committed by another session. The entry has the transaction id of the
-- refresh, so no process needs to be asked whether the refresh is still running.
ALTER TABLE millstream.refresh_history
    ADD COLUMN transaction_id xid8,
    ADD COLUMN backend_pid integer,
    ADD COLUMN backend_start timestamptz;
COMMENT ON COLUMN millstream.refresh_history.transaction_id IS 'The transaction of the refresh; of an entry RUNNING that of its last try';
COMMENT ON COLUMN millstream.refresh_history.backend_pid IS 'The server process of the session that wrote an entry RUNNING; where that is gone too, its process has died';
COMMENT ON COLUMN millstream.refresh_history.backend_start IS 'When that server process started: process ids are used again';
CREATE INDEX refresh_history_running_idx ON millstream.refresh_history (stream_table_id) WHERE status = 'RUNNING';
CREATE INDEX refresh_history_started_at_idx ON millstream.refresh_history (started_at);
