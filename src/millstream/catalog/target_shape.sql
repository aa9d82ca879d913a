-- facts --
-- Of a stream table's own table: columns that are computed, rules, tables that inherit from it.
SELECT
    ARRAY(
        SELECT quote_ident(a.attname)
        FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND (a.attgenerated <> '' OR a.attidentity <> '')
        ORDER BY a.attnum
    ),
    ARRAY(SELECT quote_ident(w.rulename) FROM pg_rewrite AS w WHERE w.ev_class = c.oid ORDER BY w.rulename),
    ARRAY(
        SELECT quote_ident(n.nspname) || '.' || quote_ident(k.relname)
        FROM pg_inherits AS h
        JOIN pg_class AS k ON k.oid = h.inhrelid
        JOIN pg_namespace AS n ON n.oid = k.relnamespace
        WHERE h.inhparent = c.oid
        ORDER BY k.oid
    )
FROM pg_class AS c
WHERE c.oid = %s;
