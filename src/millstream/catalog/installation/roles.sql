-- lacking --
-- Those of our two roles that exist and cannot yet use all that they may, and who could make others members of them without being
-- a member of the catalog's owner.
SELECT r.rolname, ARRAY(
        SELECT m.member::regrole::text
        FROM pg_auth_members AS m
        WHERE m.roleid = r.oid AND m.admin_option AND NOT pg_has_role(m.member, n.nspowner, 'MEMBER')
        ORDER BY 1
    )
FROM pg_namespace AS n
JOIN pg_roles AS r ON r.rolname = ANY (%(roles)s::text[])
WHERE n.nspname = 'millstream' AND NOT (
    has_schema_privilege(r.oid, n.oid, 'USAGE')
    AND (SELECT bool_and(has_table_privilege(r.oid, o.name, 'SELECT')) FROM unnest(%(views)s::text[]) AS o (name))
    AND (SELECT bool_and(has_function_privilege(r.oid, o.name, 'EXECUTE')) FROM unnest(%(functions)s::text[]) AS o (name))
)
ORDER BY r.rolname;
