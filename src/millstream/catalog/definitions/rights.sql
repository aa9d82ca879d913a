-- role --
-- A role by name, or the session's own: its name, and whether the session may act as it and has its rights.
SELECT r.rolname, pg_has_role(r.oid, %(how)s), pg_has_role(r.oid, 'USAGE')
FROM pg_roles AS r
WHERE r.rolname = coalesce(%(name)s, current_user);

-- owners --
SELECT c.oid::int8, pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = ANY (%s::oid[]);

-- policies --
-- The tables among these with row-level security, and whether it is forced for their owner.
SELECT c.oid::int8, format('%%I.%%I', n.nspname, c.relname)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::oid[]) AND c.relrowsecurity
ORDER BY 2;
