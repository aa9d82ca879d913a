-- inspect --
-- The current state of the tables of these stream tables, or of all. The mark is a comment on a unique index.
SELECT s.id, CASE
    WHEN c.oid IS NULL THEN 'absent'
    WHEN (n.nspname, c.relname) <> (s.schema_name, s.name) OR c.relkind <> 'r' THEN 'another'
    WHEN NOT EXISTS (
        SELECT FROM pg_index AS x
        JOIN pg_description AS d ON d.classoid = 'pg_class'::regclass AND d.objoid = x.indexrelid AND d.objsubid = 0
        WHERE x.indrelid = c.oid AND x.indisunique
            AND d.description = format('Millstream: stream table %%s of installation %%s', s.id, i.id)
    ) THEN 'unmarked'
    ELSE 'ours'
END, c.oid, n.nspname, c.relname
FROM millstream.stream_tables AS s
CROSS JOIN millstream.installation AS i
LEFT JOIN pg_class AS c ON c.oid = s.relid
LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE %(ids)s::int8[] IS NULL OR s.id = ANY (%(ids)s)
ORDER BY s.id DESC;

-- marks --
-- The statements that set the mark on the unique indexes of a stream table's table, except partial ones.
SELECT format(
    'COMMENT ON INDEX %%I.%%I IS %%L', n.nspname, c.relname,
    format('Millstream: stream table %%s of installation %%s', s.id, i.id)
)
FROM millstream.stream_tables AS s
CROSS JOIN millstream.installation AS i
JOIN pg_index AS x ON x.indrelid = s.relid AND x.indisunique AND x.indpred IS NULL
JOIN pg_class AS c ON c.oid = x.indexrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE s.id = %s
ORDER BY c.oid;

-- follow --
-- Record the current name of the table of a stream table, if it has the mark and no relation has its former name.
UPDATE millstream.stream_tables AS s
SET schema_name = n.nspname, name = c.relname, updated_at = clock_timestamp()
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN millstream.installation AS i
WHERE s.id = %s AND c.oid = s.relid AND c.relkind = 'r'
    AND EXISTS (
        SELECT FROM pg_index AS x
        JOIN pg_description AS d ON d.classoid = 'pg_class'::regclass AND d.objoid = x.indexrelid AND d.objsubid = 0
        WHERE x.indrelid = c.oid AND x.indisunique
            AND d.description = format('Millstream: stream table %%s of installation %%s', s.id, i.id)
    )
    AND NOT EXISTS (
        SELECT FROM pg_class AS o
        JOIN pg_namespace AS m ON m.oid = o.relnamespace
        WHERE (m.nspname, o.relname) = (s.schema_name, s.name)
    )
    AND NOT EXISTS (
        SELECT FROM millstream.stream_tables AS o WHERE (o.schema_name, o.name) = (n.nspname, c.relname) AND o.id <> s.id
    )
RETURNING s.id;
