-- columns --
-- Every column of a table: what is recorded of it, the type underneath its domains without a modifier, and, of a
-- virtual generated column, its expression and the columns that this is made of.
WITH RECURSIVE unwrapped AS (
    SELECT attnum, atttypid AS type FROM pg_attribute WHERE attrelid = %(relid)s AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT u.attnum, t.typbasetype
    FROM unwrapped AS u
    JOIN pg_type AS t ON t.oid = u.type
    WHERE t.typtype = 'd'
)
SELECT
    a.attnum, a.attname, a.atttypid, format_type(u.type, -1), a.atttypmod, a.attcollation, md5(x.adbin::text),
    CASE WHEN a.attgenerated = 'v' THEN pg_get_expr(x.adbin, x.adrelid) END,
    ARRAY(
        SELECT d.refobjsubid
        FROM pg_depend AS d
        WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = x.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid <> a.attnum
    )
FROM pg_attribute AS a
JOIN unwrapped AS u ON u.attnum = a.attnum
JOIN pg_type AS t ON t.oid = u.type AND t.typtype <> 'd'
LEFT JOIN pg_attrdef AS x ON x.adrelid = a.attrelid AND x.adnum = a.attnum AND a.attgenerated <> ''
WHERE a.attrelid = %(relid)s
ORDER BY a.attnum;
