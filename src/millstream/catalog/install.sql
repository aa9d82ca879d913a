-- serialize --
-- Installs wait for one another; the lock goes with the transaction. The number spells "millstre".
SELECT pg_advisory_xact_lock(7883951835738042981);

-- schemas --
-- Those of our schemas that are there, with their owners, and whether we may look inside.
SELECT nspname, pg_get_userbyid(nspowner), pg_has_role(nspowner, 'USAGE') AND has_schema_privilege(oid, 'USAGE')
FROM pg_namespace
WHERE nspname IN ('millstream', 'millstream_changes', 'millstream_state')
ORDER BY nspname;

-- is_ours --
-- Asked by name in pg_class: to_regclass raises where the schema is closed to us.
SELECT count(*) = 1
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'millstream' AND c.relname = 'migrations' AND c.relkind = 'r';

-- version --
SELECT coalesce(max(version), 0) FROM millstream.migrations;

-- record --
INSERT INTO millstream.migrations (version, name) VALUES (%s, %s);

-- may_create --
SELECT has_database_privilege(current_database(), 'CREATE'), current_user::text, current_database()::text;

-- triggers --
-- Every trigger that calls a function of ours, wherever it is; asked of the server, not of the catalog.
SELECT t.tgrelid, t.tgname, n.nspname, c.relname
FROM pg_trigger AS t
JOIN pg_class AS c ON c.oid = t.tgrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_proc AS p ON p.oid = t.tgfoid
WHERE NOT t.tgisinternal AND t.tgparentid = 0
    AND p.pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('millstream', 'millstream_changes'))
    AND n.nspname NOT IN ('millstream', 'millstream_changes', 'millstream_state')
ORDER BY t.tgrelid, t.tgname;

-- stream_tables --
-- The tables of stream tables that still exist, by their present names.
SELECT c.oid, n.nspname, c.relname
FROM millstream.stream_tables AS s
JOIN pg_class AS c ON c.oid = s.relid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
ORDER BY s.id DESC;

-- slots --
-- Those of our replication slots that are there.
-- Also one that was made and not recorded any more.
SELECT slot_name
FROM pg_replication_slots
WHERE database = current_database()
    AND slot_name IN (SELECT 'millstream_' || left(id::text, 8) FROM millstream.installation);

-- identities --
-- The tables whose replica identity we have set, as they are still, and what it was before.
SELECT n.nspname, c.relname, f.value
FROM millstream.sources AS s
-- An older catalog has none.
CROSS JOIN LATERAL jsonb_each_text(to_jsonb(s) -> 'identities') AS f
JOIN pg_class AS c ON c.oid = f.key::oid AND c.relreplident = 'f'
JOIN pg_namespace AS n ON n.oid = c.relnamespace
ORDER BY c.oid;

-- publications --
SELECT pubname FROM pg_publication WHERE pubname IN (SELECT 'millstream_' || left(id::text, 8) FROM millstream.installation);

-- strangers --
-- Tables in the catalog's schema that are not the catalog's. A role named "millstream" makes its tables here
-- when it gives no schema: the default search_path starts with the role's own name.
SELECT c.oid, n.nspname, c.relname
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'millstream' AND c.relkind IN ('r', 'p', 'm', 'f') AND c.relname <> ALL (%s)
ORDER BY c.relname;
