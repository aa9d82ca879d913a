-- facts --
-- Facts about a stream table's own table: generated columns, with their names as SQL writes them; rules; tables that
-- inherit from it.
SELECT
    ARRAY(
        SELECT ARRAY[a.attname::text, quote_ident(a.attname)]
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

-- retyped --
-- The columns of a query, given as a view, whose type or collation differs in the table of a stream table: with the
-- type, and the collation if it is not the type's default.
SELECT w.attname, format_type(w.atttypid, w.atttypmod),
    (
        SELECT quote_ident(n.nspname) || '.' || quote_ident(o.collname)
        FROM pg_collation AS o JOIN pg_namespace AS n ON n.oid = o.collnamespace
        WHERE o.oid = w.attcollation AND w.attcollation <> y.typcollation
    )
FROM pg_attribute AS w
JOIN pg_type AS y ON y.oid = w.atttypid
JOIN pg_attribute AS t ON t.attrelid = %(table)s AND t.attname = w.attname AND t.attnum > 0 AND NOT t.attisdropped
WHERE w.attrelid = %(view)s AND w.attnum > 0 AND NOT w.attisdropped
    AND (w.atttypid, w.atttypmod, w.attcollation) IS DISTINCT FROM (t.atttypid, t.atttypmod, t.attcollation)
ORDER BY w.attnum;

-- wanted --
-- The columns of a query, given as a view, in order: name, type, and the collation if it is not the type's default.
SELECT w.attname, format_type(w.atttypid, w.atttypmod),
    (
        SELECT quote_ident(n.nspname) || '.' || quote_ident(o.collname)
        FROM pg_collation AS o JOIN pg_namespace AS n ON n.oid = o.collnamespace
        WHERE o.oid = w.attcollation AND w.attcollation <> y.typcollation
    )
FROM pg_attribute AS w
JOIN pg_type AS y ON y.oid = w.atttypid
WHERE w.attrelid = %(view)s AND w.attnum > 0 AND NOT w.attisdropped
ORDER BY w.attnum;

-- marked_indexes --
-- The key of a stream table: the statements that drop its unique indexes with the mark.
SELECT CASE
    WHEN k.oid IS NULL THEN format('DROP INDEX %%I.%%I', n.nspname, c.relname)
    ELSE format('ALTER TABLE %%s DROP CONSTRAINT %%I', i.indrelid::regclass, k.conname)
END
FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_description AS d ON d.classoid = 'pg_class'::regclass AND d.objoid = i.indexrelid AND d.objsubid = 0
LEFT JOIN pg_constraint AS k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u')
WHERE i.indrelid = %(table)s AND i.indisunique AND starts_with(d.description, 'Millstream: stream table ');
