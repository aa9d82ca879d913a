-- take_rows --
-- The stream tables among these that are free. The row of one that is being created is inserted and not yet committed.
SELECT stream_table_id
FROM millstream.locks
WHERE stream_table_id = ANY (%s)
ORDER BY stream_table_id
FOR UPDATE SKIP LOCKED;

-- absent --
-- The stream tables among these without a visible row: it is being created, or its process was killed while creating
-- it.
SELECT id
FROM unnest(%s::int8[]) AS id
WHERE NOT EXISTS (SELECT FROM millstream.locks AS l WHERE l.stream_table_id = id)
ORDER BY id;

-- add_row --
-- Waits for a transaction that has inserted the same row.
INSERT INTO millstream.locks (stream_table_id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING stream_table_id;

-- remove_rows --
-- Rows of dropped stream tables, except those that are locked.
DELETE FROM millstream.locks
WHERE stream_table_id IN (
    SELECT l.stream_table_id
    FROM millstream.locks AS l
    WHERE NOT EXISTS (SELECT FROM millstream.stream_tables AS s WHERE s.id = l.stream_table_id)
    FOR UPDATE SKIP LOCKED
);

-- row_holders --
-- The sessions that have locked these rows: a row has the id of the locking transaction. An invisible row belongs to
-- the session that inserts it.
SELECT id, (
    SELECT format('process %%s (%%s)', a.pid, concat_ws(
        ', ', nullif(a.application_name, ''), host(a.client_addr), 'since ' || date_trunc('second', a.xact_start)
    ))
    FROM pg_locks AS k
    JOIN pg_stat_activity AS a ON a.pid = k.pid
    WHERE k.granted AND k.pid <> pg_backend_pid() AND CASE
        WHEN l.stream_table_id IS NOT NULL THEN k.locktype = 'transactionid' AND k.transactionid = l.xmax
        ELSE k.locktype = 'relation' AND k.relation = 'millstream.locks'::regclass AND k.mode = 'RowExclusiveLock'
            AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    END
    LIMIT 1
)
FROM unnest(%s::int8[]) AS id
LEFT JOIN millstream.locks AS l ON l.stream_table_id = id;

-- view_holder --
SELECT format('process %%s (%%s)', a.pid, concat_ws(
    ', ', nullif(a.application_name, ''), host(a.client_addr), 'since ' || date_trunc('second', a.xact_start)
))
FROM pg_locks AS k
JOIN pg_stat_activity AS a ON a.pid = k.pid
WHERE k.granted AND k.pid <> pg_backend_pid() AND k.locktype = 'relation' AND k.relation = %s::regclass
    AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND k.mode <> 'AccessShareLock'
LIMIT 1;
