-- under --
-- The functions and types under queries whose owners are not trusted. The owner of a function may replace it at any
-- time, the owner of a domain may give it another CHECK, the owner of a type that a query converts may define another
-- cast: each would run in our sessions.
WITH RECURSIVE converted (oid) AS (
    -- A domain is converted like its base type, an array like its elements.
    SELECT oid FROM unnest(%(casts)s::oid[]) AS asked (oid)
    UNION
    SELECT w.oid
    FROM converted AS c
    JOIN pg_type AS t ON t.oid = c.oid
    CROSS JOIN LATERAL (VALUES (t.typbasetype), (CASE t.typcategory WHEN 'A' THEN t.typelem ELSE 0 END)) AS w (oid)
    WHERE w.oid <> 0
), found (kind, oid, owner) AS (
    SELECT 'function', p.oid, p.proowner
    FROM unnest(%(functions)s::oid[]) AS asked (oid)
    JOIN pg_proc AS p ON p.oid = asked.oid
    UNION ALL
    SELECT 'type', t.oid, t.typowner
    FROM unnest(%(types)s::oid[]) AS asked (oid)
    JOIN pg_type AS t ON t.oid = asked.oid AND t.typtype = 'd'
    UNION ALL
    SELECT 'cast', t.oid, t.typowner
    FROM converted AS c
    JOIN pg_type AS t ON t.oid = c.oid
), untrusted AS MATERIALIZED (
    SELECT r.oid, r.rolname
    FROM pg_roles AS r
    WHERE r.oid IN (SELECT owner FROM found) AND NOT r.rolsuper AND r.rolname <> ALL (%(trusted)s::text[])
        AND NOT (pg_has_role(r.oid, current_user, %(how)s) AND pg_has_role(r.oid, session_user, %(how)s))
)
SELECT f.kind, f.oid::int8,
    pg_describe_object(CASE f.kind WHEN 'function' THEN 'pg_proc'::regclass ELSE 'pg_type'::regclass END, f.oid, 0),
    u.rolname
FROM found AS f
JOIN untrusted AS u ON u.oid = f.owner
ORDER BY 3;

-- on_tables --
-- Code with untrusted owners that runs when rows of these tables are written: functions of triggers, rules, defaults,
-- constraints and indexes; domains; the same on tables that a foreign key's action changes.
WITH asked AS (
    SELECT oid FROM unnest(%(relids)s::oid[]) AS asked (oid)
), parts (relid, classid, objid) AS (
    SELECT c.conrelid, 'pg_constraint'::regclass, c.oid FROM pg_constraint AS c JOIN asked AS a ON a.oid = c.conrelid
    UNION ALL
    SELECT i.indrelid, 'pg_class'::regclass, i.indexrelid FROM pg_index AS i JOIN asked AS a ON a.oid = i.indrelid
    UNION ALL
    SELECT d.adrelid, 'pg_attrdef'::regclass, d.oid FROM pg_attrdef AS d JOIN asked AS a ON a.oid = d.adrelid
    UNION ALL
    SELECT w.ev_class, 'pg_rewrite'::regclass, w.oid FROM pg_rewrite AS w JOIN asked AS a ON a.oid = w.ev_class
), found (relid, classid, objid, by_class, by_object, owner) AS (
    SELECT t.tgrelid, 'pg_trigger'::regclass, t.oid, 'pg_proc'::regclass, p.oid, p.proowner
    FROM asked AS a
    JOIN pg_trigger AS t ON t.tgrelid = a.oid
    JOIN pg_proc AS p ON p.oid = t.tgfoid
    WHERE NOT t.tgisinternal
    UNION ALL
    SELECT o.relid, o.classid, o.objid, 'pg_proc'::regclass, p.oid, p.proowner
    FROM parts AS o
    JOIN pg_depend AS d ON d.classid = o.classid AND d.objid = o.objid
    LEFT JOIN pg_operator AS x ON d.refclassid = 'pg_operator'::regclass AND x.oid = d.refobjid
    JOIN pg_proc AS p ON p.oid = CASE WHEN d.refclassid = 'pg_proc'::regclass THEN d.refobjid ELSE x.oprcode END
    UNION ALL
    SELECT b.attrelid, 'pg_class'::regclass, b.attrelid, 'pg_type'::regclass, y.oid, y.typowner
    FROM asked AS a
    JOIN pg_attribute AS b ON b.attrelid = a.oid AND b.attnum > 0 AND NOT b.attisdropped
    JOIN pg_type AS y ON y.oid = b.atttypid AND y.typtype = 'd'
    UNION ALL
    SELECT k.confrelid, 'pg_constraint'::regclass, k.oid, 'pg_class'::regclass, c.oid, c.relowner
    FROM asked AS a
    JOIN pg_constraint AS k ON k.confrelid = a.oid AND k.contype = 'f' AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'))
    JOIN pg_class AS c ON c.oid = k.conrelid
    UNION ALL
    SELECT h.inhparent, 'pg_class'::regclass, c.oid, 'pg_class'::regclass, c.oid, c.relowner
    FROM asked AS a
    JOIN pg_inherits AS h ON h.inhparent = a.oid
    JOIN pg_class AS c ON c.oid = h.inhrelid
), untrusted AS MATERIALIZED (
    SELECT r.oid, r.rolname
    FROM pg_roles AS r
    WHERE r.oid IN (SELECT owner FROM found) AND NOT r.rolsuper AND r.rolname <> ALL (%(trusted)s::text[])
        AND NOT (pg_has_role(r.oid, current_user, %(how)s) AND pg_has_role(r.oid, session_user, %(how)s))
)
SELECT f.relid::int8, format(
        '%%s (by %%s)', pg_describe_object(f.classid, f.objid, 0), pg_describe_object(f.by_class, f.by_object, 0)
    ), u.rolname
FROM found AS f
JOIN untrusted AS u ON u.oid = f.owner
ORDER BY 1, 2;

-- open_tables --
-- The tables to which an untrusted role may attach code: it owns them, or was granted TRIGGER or REFERENCES.
WITH found (relid, owner) AS (
    SELECT c.oid, c.relowner FROM pg_class AS c WHERE c.oid = ANY (%(relids)s::oid[])
    UNION
    SELECT c.oid, a.grantee
    FROM pg_class AS c
    CROSS JOIN LATERAL aclexplode(c.relacl) AS a
    WHERE c.oid = ANY (%(relids)s::oid[]) AND a.privilege_type IN ('TRIGGER', 'REFERENCES')
)
SELECT DISTINCT f.relid::int8
FROM found AS f
LEFT JOIN pg_roles AS r ON r.oid = f.owner
WHERE r.oid IS NULL OR (
    NOT r.rolsuper AND r.rolname <> ALL (%(trusted)s::text[])
    AND NOT (pg_has_role(r.oid, current_user, %(how)s) AND pg_has_role(r.oid, session_user, %(how)s))
);
