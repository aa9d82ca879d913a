-- writers --
-- The transactions of this database that have written, oldest first: one of them has created one of our schemas.
SELECT format('process %s (%s)', pid, concat_ws(
    ', ', nullif(application_name, ''), host(client_addr), 'since ' || date_trunc('second', xact_start)
))
FROM pg_stat_activity
WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()
ORDER BY age(backend_xid) DESC
LIMIT 3;

-- schemas --
-- Our schemas that exist, with their owners.
SELECT nspname, pg_get_userbyid(nspowner)
FROM pg_namespace
WHERE nspname IN ('millstream', 'millstream_changes', 'millstream_state')
ORDER BY nspname;

-- version --
SELECT coalesce(max(version), 0) FROM millstream.migrations;

-- record --
INSERT INTO millstream.migrations (version, name) VALUES (%s, %s);

-- granted --
-- Privileges of other roles on the new objects, granted by ALTER DEFAULT PRIVILEGES.
SELECT format(
    'REVOKE ALL ON %s FROM %s', o.what, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
)
FROM (
    SELECT nspowner, nspacl, format('SCHEMA %I', nspname) FROM pg_namespace
    WHERE nspname IN ('millstream', 'millstream_changes', 'millstream_state')
    UNION ALL
    SELECT c.relowner, c.relacl, format('TABLE %I.%I', n.nspname, c.relname)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('millstream', 'millstream_changes', 'millstream_state')
    UNION ALL
    SELECT p.proowner, p.proacl, format('ROUTINE %s', p.oid::regprocedure)
    FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname IN ('millstream', 'millstream_changes', 'millstream_state')
) AS o (owner, acl, what)
CROSS JOIN LATERAL aclexplode(o.acl) AS a
WHERE a.grantee <> o.owner
GROUP BY o.what, a.grantee;

-- may_create --
SELECT has_database_privilege(current_database(), 'CREATE'), current_user::text, current_database()::text;

-- captured --
-- Every table with a trigger that calls one of our functions, from the system catalogs and not from ours.
SELECT DISTINCT t.tgrelid
FROM pg_trigger AS t
JOIN pg_class AS c ON c.oid = t.tgrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_proc AS p ON p.oid = t.tgfoid
WHERE NOT t.tgisinternal AND t.tgparentid = 0
    AND p.pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('millstream', 'millstream_changes'))
    AND n.nspname NOT IN ('millstream', 'millstream_changes', 'millstream_state');

-- slots --
-- Our replication slots that exist. Also one that was created and could not be recorded.
SELECT slot_name
FROM pg_replication_slots
WHERE database = current_database()
    AND slot_name IN (SELECT 'millstream_' || left(id::text, 8) FROM millstream.installation);

-- identities --
-- The tables whose replica identity Millstream has set and that still have it, and the former one. Tables are
-- identified by name and oid: if only one of them matches, it is another table.
SELECT n.nspname, c.relname, f.value
FROM millstream.sources AS s
CROSS JOIN LATERAL jsonb_each_text(s.identities) AS f
CROSS JOIN LATERAL (
    SELECT format('%I.%I', s.schema_name, s.name) WHERE s.relid = f.key::oid
    UNION ALL
    SELECT s.partition_names[array_position(s.partitions, f.key::oid)] WHERE f.key::oid = ANY (s.partitions)
) AS k (name)
JOIN pg_class AS c ON c.oid = f.key::oid AND c.relreplident = 'f' AND pg_has_role(c.relowner, 'USAGE')
JOIN pg_namespace AS n ON n.oid = c.relnamespace AND format('%I.%I', n.nspname, c.relname) = k.name
ORDER BY c.oid;

-- publications --
SELECT pubname FROM pg_publication WHERE pubname IN (SELECT 'millstream_' || left(id::text, 8) FROM millstream.installation);

-- strangers --
-- Tables in the catalog's schema that do not belong to the catalog. A role named "millstream" creates its tables there
-- if it gives no schema: the default search_path starts with the role's own name.
SELECT c.oid, n.nspname, c.relname
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'millstream' AND c.relkind IN ('r', 'p', 'm', 'f') AND c.relname <> ALL (%s)
ORDER BY c.relname;

-- removal_locks --
-- The most locks of a transaction that removes everything. DROP locks each object separately: relations, types,
-- constraints, defaults, rules, triggers, functions.
WITH ours AS (
    SELECT oid FROM pg_namespace WHERE nspname IN ('millstream', 'millstream_changes', 'millstream_state')
), relations AS (
    SELECT c.oid, c.reltype, c.reltoastrelid
    FROM pg_class AS c
    WHERE c.relkind <> 'i' AND (
        c.relnamespace IN (SELECT oid FROM ours) OR c.oid IN (SELECT relid FROM millstream.stream_tables)
    )
), triggers AS (
    SELECT t.oid, t.tgrelid
    FROM pg_trigger AS t
    JOIN pg_proc AS p ON p.oid = t.tgfoid
    WHERE p.pronamespace IN (SELECT oid FROM ours) OR t.tgrelid IN (SELECT oid FROM relations)
)
SELECT
    -- Each with its row type, the array type of it, and its TOAST table with an index.
    (SELECT count(*) * 3 + count(*) FILTER (WHERE reltoastrelid <> 0) * 2 FROM relations)
    + (SELECT count(*) FROM pg_index WHERE indrelid IN (SELECT oid FROM relations))
    + (SELECT count(*) FROM pg_constraint WHERE conrelid IN (SELECT oid FROM relations))
    + (SELECT count(*) FROM pg_attrdef WHERE adrelid IN (SELECT oid FROM relations))
    + (SELECT count(*) FROM pg_rewrite WHERE ev_class IN (SELECT oid FROM relations))
    + (SELECT count(*) + count(DISTINCT tgrelid) FROM triggers)
    + (SELECT count(*) FROM pg_proc WHERE pronamespace IN (SELECT oid FROM ours))
    + (SELECT count(*) * 2 FROM millstream.sources)
    -- The server's own catalog, with its indexes.
    + 100;

-- states --
-- The views and tables of a stream table in millstream_state, views first.
SELECT CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, 'millstream_state', array_agg(relname ORDER BY relname)
FROM pg_class
WHERE relnamespace = 'millstream_state'::regnamespace AND relkind IN ('r', 'v') AND relname ~ ('^[a-z]+_' || %s::int8 || '_')
GROUP BY relkind
ORDER BY relkind DESC;

-- triggers_on --
SELECT t.tgname
FROM pg_trigger AS t
JOIN pg_proc AS p ON p.oid = t.tgfoid
WHERE t.tgrelid = %s AND NOT t.tgisinternal AND t.tgparentid = 0
    AND p.pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('millstream', 'millstream_changes'));

-- parts --
-- The functions of each source, its buffer, and the views and tables of each stream table; views before tables.
SELECT kind, schema, array_agg(name ORDER BY name)
FROM (
    SELECT 1 AS step, 'FUNCTION' AS kind, 'millstream_changes' AS schema, proname AS name, split_part(proname, '_', 2) AS of
    FROM pg_proc WHERE pronamespace = 'millstream_changes'::regnamespace AND proname ~ '^capture_\d'
    UNION ALL
    SELECT 2, 'TABLE', 'millstream_changes', relname, relname
    FROM pg_class WHERE relnamespace = 'millstream_changes'::regnamespace AND relkind = 'r' AND relname ~ '^changes_\d'
    UNION ALL
    SELECT CASE relkind WHEN 'v' THEN 3 ELSE 4 END, CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END,
        'millstream_state', relname, split_part(relname, '_', 2)
    FROM pg_class WHERE relnamespace = 'millstream_state'::regnamespace AND relkind IN ('r', 'v') AND relname ~ '^[a-z]+_\d'
) AS parts (step, kind, schema, name, of)
GROUP BY step, kind, schema, of
ORDER BY step, of;
