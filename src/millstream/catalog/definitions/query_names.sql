-- of_view --
-- The relations that the query of a view names, with all of their columns.
SELECT c.oid::int8, n.nspname::text, c.relname::text,
    ARRAY(SELECT a.attnum FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
    ARRAY(SELECT a.attname::text FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.oid <> %(view)s AND c.oid IN (
    SELECT d.refobjid
    FROM pg_rewrite AS w
    JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
    WHERE w.ev_class = %(view)s AND d.refclassid = 'pg_class'::regclass
)
ORDER BY c.oid;

-- now --
-- The current names of these relations and their columns, except for dropped ones.
SELECT c.oid::int8, n.nspname::text, c.relname::text,
    ARRAY(SELECT a.attnum FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
    ARRAY(SELECT a.attname::text FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::oid[])
ORDER BY c.oid;

-- taken --
-- The qualified names among these that a relation has.
SELECT k.schema_name, k.name
FROM unnest(%s::text[], %s::text[]) AS k (schema_name, name)
JOIN pg_namespace AS n ON n.nspname = k.schema_name
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = k.name;

-- recorded --
SELECT relid::int8, schema_name::text, name::text, attnums, column_names::text[]
FROM millstream.query_names WHERE stream_table_id = %s ORDER BY relid;

-- remove --
DELETE FROM millstream.query_names WHERE stream_table_id = %s;

-- add --
INSERT INTO millstream.query_names (stream_table_id, relid, schema_name, name, attnums, column_names)
VALUES (%s, %s, %s, %s, %s::int2[], %s::name[]);

-- primary_key --
SELECT a.attname::text
FROM pg_index AS i
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisprimary
ORDER BY k.place;
