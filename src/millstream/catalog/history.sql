-- add --
-- Many entries in one statement, as the elements of one JSON array.
INSERT INTO millstream.refresh_history (
    stream_table_id, action, reason, status, initiated_by, started_at, finished_at, data_timestamp, frontier,
    rows_read, rows_inserted, rows_updated, rows_deleted, spark_jobs, inputs, phases, error, transaction_id
)
SELECT
    stream_table_id, action, reason, status, initiated_by, started_at, finished_at, data_timestamp, frontier,
    rows_read, rows_inserted, rows_updated, rows_deleted, spark_jobs, inputs, phases, error, pg_current_xact_id()
FROM jsonb_populate_recordset(NULL::millstream.refresh_history, %s)
RETURNING id;

-- recent --
SELECT stream_table_id, action, reason, status, initiated_by, started_at, finished_at, data_timestamp, frontier,
    rows_read, rows_inserted, rows_updated, rows_deleted, spark_jobs, inputs, phases, error, id
FROM millstream.refresh_history
WHERE stream_table_id = %s
ORDER BY id DESC
LIMIT %s;

-- exchange_running --
-- Delete some entries RUNNING and insert others. Between two tries of a refresh, another process may have marked it as
-- failed.
WITH gone AS (
    DELETE FROM millstream.refresh_history WHERE id = ANY (%(ended)s) AND (status = 'RUNNING' OR reason = %(orphaned)s)
)
INSERT INTO millstream.refresh_history (
    stream_table_id, action, reason, status, initiated_by, started_at, inputs, phases, transaction_id,
    backend_pid, backend_start
)
SELECT
    b.stream_table_id, b.action, b.reason, 'RUNNING', b.initiated_by, b.started_at, '[]', '{}',
    %(transaction_id)s::xid8, pg_backend_pid(), a.backend_start
FROM jsonb_populate_recordset(NULL::millstream.refresh_history, %(begun)s) AS b
CROSS JOIN (SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid())) AS a
RETURNING id;

-- orphans --
-- Entries RUNNING whose transaction has ended. A transaction id in the future is of the cluster from which this
-- database was copied. A completed refresh has an entry of the same transaction. Otherwise the refresh may be between
-- two tries, as long as the session that wrote the entry exists.
SELECT r.id, s.schema_name, s.name, r.action, r.initiated_by, c.is_completed
FROM millstream.refresh_history AS r
JOIN millstream.stream_tables AS s ON s.id = r.stream_table_id
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM millstream.refresh_history AS h
        WHERE h.stream_table_id = r.stream_table_id AND h.id > r.id AND h.transaction_id = r.transaction_id
            AND h.status = 'COMPLETED'
    ) AS is_completed
) AS c
WHERE r.status = 'RUNNING' AND (
    r.transaction_id IS NULL OR r.transaction_id >= pg_snapshot_xmax(pg_current_snapshot())
    OR pg_visible_in_snapshot(r.transaction_id, pg_current_snapshot())
) AND (
    c.is_completed
    OR NOT EXISTS (
        SELECT FROM pg_stat_get_activity(r.backend_pid) AS a WHERE a.pid = r.backend_pid AND a.backend_start = r.backend_start
    )
)
FOR UPDATE OF r SKIP LOCKED;

-- remove_running --
DELETE FROM millstream.refresh_history WHERE id = ANY (%s) AND (status = 'RUNNING' OR reason = %s);

-- fail --
UPDATE millstream.refresh_history
SET status = 'FAILED', reason = %s, error = %s, finished_at = clock_timestamp()
WHERE id = %s AND status = 'RUNNING';

-- prune --
-- Some of the entries older than this, except the last one of each stream table.
DELETE FROM millstream.refresh_history
WHERE id IN (
    SELECT h.id
    FROM millstream.refresh_history AS h
    WHERE h.started_at < now() - %s AND h.status <> 'RUNNING'
        AND EXISTS (
            SELECT FROM millstream.refresh_history AS n WHERE n.stream_table_id = h.stream_table_id AND n.id > h.id
        )
    ORDER BY h.started_at
    LIMIT %s
);
