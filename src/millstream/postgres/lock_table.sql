-- size --
-- The settings that determine the size of the lock table: locks per transaction, and the number of transactions.
SELECT current_setting('max_locks_per_transaction')::int8,
    current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8;

-- held --
-- The locks that other sessions hold. Locks that a session keeps in its own memory (fastpath) and the predicate locks
-- of serializable transactions are not in the table.
SELECT count(*) FROM (
    SELECT DISTINCT locktype, database, relation, page, tuple, virtualxid, transactionid::text, classid, objid, objsubid
    FROM pg_locks WHERE pid IS DISTINCT FROM pg_backend_pid() AND NOT fastpath AND mode <> 'SIReadLock'
) AS others;

-- weights --
-- The locks for each relation, found by oid or by name: the relation, its indexes, its TOAST table and the index of it.
SELECT asked.oid, asked.name, 1 + count(i.indexrelid) + CASE WHEN c.reltoastrelid <> 0 THEN 2 ELSE 0 END
FROM (
    SELECT oid, NULL::text AS name, oid::oid AS relid FROM unnest(%s::int8[]) AS oid
    UNION ALL SELECT NULL, name, to_regclass(name)::oid FROM unnest(%s::text[]) AS name
) AS asked
JOIN pg_class AS c ON c.oid = asked.relid
LEFT JOIN pg_index AS i ON i.indrelid = c.oid
GROUP BY asked.oid, asked.name, c.reltoastrelid;
