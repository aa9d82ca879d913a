-- standing --
-- The owner of the catalog, whether the session's roles may trust it, and everything in our schemas that other roles
-- created or may change. Reads pg_catalog only: one of our tables could be a view, and its code would run with our
-- rights.
WITH ours AS MATERIALIZED (
    SELECT oid, nspname, nspowner, nspacl
    FROM pg_namespace
    WHERE nspname IN ('millstream', 'millstream_changes', 'millstream_state')
), owner AS MATERIALIZED (
    SELECT r.oid, r.rolname, r.rolsuper FROM ours AS n JOIN pg_roles AS r ON r.oid = n.nspowner WHERE n.nspname = 'millstream'
), trusted AS MATERIALIZED (
    SELECT oid FROM owner
    UNION
    SELECT oid FROM pg_roles WHERE rolsuper
), inside AS MATERIALIZED (
    -- An object that depends on a schema need not be in it: any role can write 'millstream'::regnamespace.
    SELECT n.oid AS schema, d.classid, d.objid
    FROM ours AS n
    JOIN pg_depend AS d ON d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid AND d.deptype = 'n'
), relations AS MATERIALIZED (
    SELECT c.oid, c.relname, c.relkind, c.relnamespace, c.relowner, c.relacl
    FROM inside AS i
    JOIN pg_class AS c ON c.oid = i.objid AND c.relnamespace = i.schema
    WHERE i.classid = 'pg_class'::regclass
), functions AS MATERIALIZED (
    SELECT p.oid, p.pronamespace, p.proowner, p.proacl
    FROM inside AS i
    JOIN pg_proc AS p ON p.oid = i.objid AND p.pronamespace = i.schema
    WHERE i.classid = 'pg_proc'::regclass
), foreign_objects (classid, objid, owner) AS (
    SELECT 'pg_class'::regclass, oid, relowner FROM relations
    UNION ALL
    SELECT 'pg_proc'::regclass, oid, proowner FROM functions
    UNION ALL
    SELECT 'pg_type'::regclass, t.oid, t.typowner
    FROM inside AS i
    JOIN pg_type AS t ON t.oid = i.objid AND t.typnamespace = i.schema
    WHERE i.classid = 'pg_type'::regclass
    UNION ALL
    -- Other objects with a schema and an owner. Ownership of the first superuser is not recorded.
    SELECT i.classid, i.objid, s.refobjid
    FROM inside AS i
    JOIN ours AS n ON n.oid = i.schema
    JOIN pg_shdepend AS s ON s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND s.classid = i.classid AND s.objid = i.objid AND s.deptype = 'o'
    WHERE i.classid NOT IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_type'::regclass)
        AND (pg_identify_object(i.classid, i.objid, 0)).schema = n.nspname
    UNION ALL
    -- The owner of a trigger is that of its function; for a foreign key, that of the table that refers to ours.
    SELECT 'pg_trigger'::regclass, t.oid, coalesce(k.relowner, p.proowner)
    FROM relations AS r
    JOIN pg_trigger AS t ON t.tgrelid = r.oid
    JOIN pg_proc AS p ON p.oid = t.tgfoid
    LEFT JOIN pg_class AS k ON k.oid = t.tgconstrrelid AND t.tgisinternal
), open AS MATERIALIZED (
    -- Without USAGE on the schema, privileges on its objects have no effect.
    SELECT n.oid, n.nspname
    FROM ours AS n
    WHERE EXISTS (
        SELECT FROM aclexplode(n.nspacl) AS a
        WHERE a.privilege_type = 'USAGE' AND a.grantee NOT IN (SELECT oid FROM trusted)
    )
), grants (what, on_what, grantee, privilege) AS (
    SELECT format('schema %I', n.nspname), format('SCHEMA %I', n.nspname), a.grantee, a.privilege_type
    FROM ours AS n
    CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
    WHERE a.privilege_type = 'CREATE'
    UNION ALL
    SELECT format('%I.%I', n.nspname, r.relname), format('TABLE %I.%I', n.nspname, r.relname), a.grantee, a.privilege_type
    FROM relations AS r
    JOIN open AS n ON n.oid = r.relnamespace
    CROSS JOIN LATERAL aclexplode(r.relacl) AS a
    WHERE a.privilege_type <> 'SELECT' AND r.relkind <> 'S'
    UNION ALL
    SELECT format('column %I of %I.%I', b.attname, n.nspname, r.relname), format('TABLE %I.%I', n.nspname, r.relname),
        a.grantee, format('%s (%I)', a.privilege_type, b.attname)
    FROM relations AS r
    JOIN open AS n ON n.oid = r.relnamespace
    JOIN pg_attribute AS b ON b.attrelid = r.oid AND b.attacl IS NOT NULL
    CROSS JOIN LATERAL aclexplode(b.attacl) AS a
    WHERE a.privilege_type <> 'SELECT'
        -- Roles that send requests insert into these columns of this view; `requested_by` is not among them.
        AND NOT (
            n.nspname = 'millstream' AND r.relname = 'own_requests' AND r.relkind = 'v' AND a.privilege_type = 'INSERT'
            AND b.attname IN ('kind', 'stream_table', 'arguments', 'search_path')
        )
    UNION ALL
    -- Capture functions write into the buffers with our rights.
    SELECT p.oid::regprocedure::text, format('FUNCTION %s', p.oid::regprocedure), a.grantee, a.privilege_type
    FROM functions AS p
    JOIN open AS n ON n.oid = p.pronamespace AND n.nspname = 'millstream_changes'
    CROSS JOIN LATERAL aclexplode(p.proacl) AS a
), findings (what, remedy) AS (
    SELECT format('schema %I of role %I', nspname, pg_get_userbyid(nspowner)), format('DROP SCHEMA %I CASCADE;', nspname)
    FROM ours
    WHERE nspowner NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT DISTINCT format('%s %s of role %I', o.type, o.identity, pg_get_userbyid(f.owner)), CASE
        WHEN k.oid IS NOT NULL THEN format('ALTER TABLE %s DROP CONSTRAINT %I;', k.conrelid::regclass, k.conname)
        ELSE format(
            'DROP %s %s;',
            upper(CASE w.type WHEN 'composite type' THEN 'type' WHEN 'statistics object' THEN 'statistics' ELSE w.type END),
            w.identity
        )
    END
    FROM foreign_objects AS f
    LEFT JOIN pg_trigger AS t ON f.classid = 'pg_trigger'::regclass AND t.oid = f.objid AND t.tgisinternal
    LEFT JOIN pg_constraint AS k ON k.oid = t.tgconstraint
    CROSS JOIN LATERAL pg_identify_object(
        CASE WHEN k.oid IS NULL THEN f.classid ELSE 'pg_constraint'::regclass END, coalesce(k.oid, f.objid), 0
    ) AS o
    -- The functions of a range type can be dropped only with it.
    LEFT JOIN pg_depend AS d ON d.classid = f.classid AND d.objid = f.objid AND d.deptype = 'i' AND k.oid IS NULL
    CROSS JOIN LATERAL pg_identify_object(coalesce(d.refclassid, f.classid), coalesce(d.refobjid, f.objid), 0) AS w
    WHERE f.owner NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT format(
            '%s on %s for %s', g.privilege, g.what, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE 'role ' || g.grantee::regrole END
        ),
        format(
            'REVOKE %s ON %s FROM %s;', g.privilege, g.on_what,
            CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END
        )
    FROM grants AS g
    WHERE g.grantee NOT IN (SELECT oid FROM trusted)
)
SELECT
    EXISTS (SELECT FROM relations AS r JOIN ours AS n ON n.oid = r.relnamespace
        WHERE n.nspname = 'millstream' AND r.relname = 'migrations' AND r.relkind = 'r'),
    (SELECT rolname FROM owner),
    current_user::text, session_user::text,
    (SELECT pg_has_role(oid, 'USAGE') FROM owner),
    (SELECT bool_and(o.rolsuper OR o.rolname = who) FROM owner AS o, unnest(ARRAY[current_user, session_user]) AS who),
    ARRAY(SELECT ARRAY[what, remedy] FROM findings ORDER BY what LIMIT 20);
