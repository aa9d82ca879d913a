-- columns --
-- Every column of these tables: the recorded properties; the base type under its domains, without a modifier; and, for
-- a virtual generated column, its expression and the columns that it uses.
WITH RECURSIVE unwrapped AS (
    SELECT attrelid, attnum, atttypid AS type
    FROM pg_attribute
    WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT u.attrelid, u.attnum, t.typbasetype
    FROM unwrapped AS u
    JOIN pg_type AS t ON t.oid = u.type
    WHERE t.typtype = 'd'
)
SELECT
    a.attrelid, a.attnum, a.attname, a.atttypid, format_type(u.type, -1), a.atttypmod, a.attcollation, md5(x.adbin::text),
    CASE WHEN a.attgenerated = 'v' THEN pg_get_expr(x.adbin, x.adrelid) END,
    ARRAY(
        SELECT d.refobjsubid
        FROM pg_depend AS d
        WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = x.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid <> a.attnum
    )
FROM unwrapped AS u
JOIN pg_attribute AS a ON a.attrelid = u.attrelid AND a.attnum = u.attnum
JOIN pg_type AS t ON t.oid = u.type AND t.typtype <> 'd'
LEFT JOIN pg_attrdef AS x ON x.adrelid = a.attrelid AND x.adnum = a.attnum AND a.attgenerated <> ''
ORDER BY a.attrelid, a.attnum;
