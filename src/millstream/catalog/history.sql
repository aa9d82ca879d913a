-- add --
-- Many entries at once, as the rows of one JSON array.
INSERT INTO millstream.refresh_history (
    stream_table_id, action, reason, status, initiated_by, started_at, finished_at, data_timestamp, frontier,
    rows_read, rows_inserted, rows_updated, rows_deleted, spark_jobs, inputs, phases, error
)
SELECT
    stream_table_id, action, reason, status, initiated_by, started_at, finished_at, data_timestamp, frontier,
    rows_read, rows_inserted, rows_updated, rows_deleted, spark_jobs, inputs, phases, error
FROM jsonb_populate_recordset(NULL::millstream.refresh_history, %s)
RETURNING id;

-- recent --
SELECT stream_table_id, action, reason, status, initiated_by, started_at, finished_at, data_timestamp, frontier,
    rows_read, rows_inserted, rows_updated, rows_deleted, spark_jobs, inputs, phases, error, id
FROM millstream.refresh_history
WHERE stream_table_id = %s
ORDER BY id DESC
LIMIT %s;
