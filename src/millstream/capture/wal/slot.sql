-- name --
-- The name of the slot and of the publication: one of each per installation.
SELECT 'millstream_' || left(id::text, 8) FROM millstream.installation;

-- publication --
SELECT oid FROM pg_publication WHERE pubname = %s;

-- published --
SELECT prrelid FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid WHERE p.pubname = %s;

-- database --
SELECT oid FROM pg_database WHERE datname = current_database();

-- slot --
-- The current state of a slot. Its columns depend on the server's version; missing ones are NULL.
SELECT
    plugin, datoid, active_pid, confirmed_flush_lsn::text, wal_status,
    to_jsonb(s) ->> 'invalidation_reason', coalesce((to_jsonb(s) ->> 'conflicting')::boolean, false)
FROM pg_replication_slots AS s
WHERE slot_name = %s;

-- stale_sender --
-- The walsender of an earlier connection of this reader, which the server has not ended yet.
SELECT pg_terminate_backend(a.pid)
FROM pg_replication_slots AS s
JOIN pg_stat_activity AS a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND a.application_name = %s;
