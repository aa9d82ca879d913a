-- lacking --
-- The roles that lack privileges: (role, kind, roles that can add members to it). The last column is for the two roles
-- that administrators create: roles with ADMIN OPTION on them that are not members of the catalog's owner. Owners of
-- stream tables with all rights of the catalog's owner lack nothing.
WITH wanted AS (
    SELECT r.oid, r.rolname, substring(r.rolname FROM '^millstream_(.*)$') AS kind, ARRAY(
            SELECT m.member::regrole::text
            FROM pg_auth_members AS m
            WHERE m.roleid = r.oid AND m.admin_option AND NOT pg_has_role(m.member, n.nspowner, 'MEMBER')
            ORDER BY 1
        ) AS others
    FROM pg_namespace AS n
    JOIN pg_roles AS r ON r.rolname IN ('millstream_reader', 'millstream_operator')
    WHERE n.nspname = 'millstream'
    UNION ALL
    SELECT o.oid, o.rolname, 'owner', '{}'
    FROM pg_roles AS o
    WHERE o.oid IN (
        SELECT c.relowner FROM millstream.stream_tables AS t JOIN pg_class AS c ON c.oid = t.relid
    ) AND NOT pg_has_role(o.oid, (SELECT nspowner FROM pg_namespace WHERE nspname = 'millstream'), 'USAGE')
)
SELECT w.rolname, w.kind, w.others
FROM wanted AS w
WHERE NOT has_schema_privilege(w.oid, 'millstream', 'USAGE')
    OR EXISTS (
        SELECT
        FROM pg_proc AS p
        WHERE p.pronamespace = 'millstream'::regnamespace
            AND (w.kind, p.proname::text) IN (
                SELECT split_part(x, ' ', 1), split_part(x, ' ', 2) FROM unnest(%(routines)s::text[]) AS x
            )
            AND NOT has_function_privilege(w.oid, p.oid, 'EXECUTE')
    )
    OR EXISTS (
        SELECT
        FROM pg_class AS c
        WHERE c.relnamespace = 'millstream'::regnamespace
            AND (w.kind, 'millstream.' || c.relname) IN (
                SELECT split_part(x, ' ', 1), split_part(x, ' ', 2) FROM unnest(%(views)s::text[]) AS x
            )
            AND NOT (
                has_table_privilege(w.oid, c.oid, 'SELECT')
                AND (c.relname <> 'own_requests' OR has_column_privilege(w.oid, c.oid, 'kind', 'INSERT'))
            )
    )
ORDER BY w.rolname;

-- routines --
SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = 'millstream'::regnamespace AND p.proname = ANY (%s) ORDER BY 1;
