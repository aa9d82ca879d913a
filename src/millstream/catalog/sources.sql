-- put --
INSERT INTO millstream.sources AS s (
    relid, schema_name, name, cdc_mode, columns, partitions, reason, cutovers, published_at, published_as, identities,
    partition_names
)
VALUES (
    %(relid)s, %(schema)s, %(name)s, %(mode)s, %(columns)s, %(partitions)s::oid[], %(reason)s, %(cutovers)s,
    %(published_at)s::text::xid8, %(published_as)s::oid[], %(identities)s,
    ARRAY(
        SELECT coalesce(quote_ident(n.nspname) || '.' || quote_ident(c.relname), '')
        FROM unnest(%(partitions)s::oid[]) WITH ORDINALITY AS m (oid, place)
        LEFT JOIN pg_class AS c ON c.oid = m.oid
        LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
        ORDER BY m.place
    )
)
ON CONFLICT (relid) DO UPDATE SET
    schema_name = excluded.schema_name, name = excluded.name, cdc_mode = excluded.cdc_mode,
    columns = excluded.columns, partitions = excluded.partitions, reason = excluded.reason, cutovers = excluded.cutovers,
    published_at = excluded.published_at, published_as = excluded.published_as, identities = excluded.identities,
    partition_names = excluded.partition_names,
    mode_changed_at = CASE WHEN s.cdc_mode = excluded.cdc_mode THEN s.mode_changed_at ELSE now() END;

-- reserve --
INSERT INTO millstream.sources (relid, schema_name, name, columns)
VALUES (%s, %s, %s, '[]')
ON CONFLICT (relid) DO NOTHING;

-- get --
SELECT relid, schema_name, name, cdc_mode, columns, partitions, reason, cutovers,
    published_at::text::int8 AS published_at, published_as, identities, mode_changed_at
FROM millstream.sources WHERE relid = %s;

-- every --
SELECT relid, schema_name, name, cdc_mode, columns, partitions, reason, cutovers,
    published_at::text::int8 AS published_at, published_as, identities, mode_changed_at
FROM millstream.sources ORDER BY relid;

-- read_by_each --
SELECT d.stream_table_id, s.relid, s.schema_name, s.name, s.cdc_mode, s.columns, s.partitions, s.reason, s.cutovers,
    s.published_at::text::int8 AS published_at, s.published_as, s.identities, s.mode_changed_at
FROM millstream.sources AS s
JOIN millstream.dependencies AS d ON d.source_relid = s.relid
WHERE d.stream_table_id = ANY (%s)
ORDER BY d.stream_table_id, s.relid;

-- get_for_update --
SELECT relid, schema_name, name, cdc_mode, columns, partitions, reason, cutovers,
    published_at::text::int8 AS published_at, published_as, identities, mode_changed_at
FROM millstream.sources WHERE relid = %s FOR NO KEY UPDATE;

-- set_reason --
UPDATE millstream.sources SET reason = %s WHERE relid = %s;

-- follow_names --
UPDATE millstream.sources AS s
SET schema_name = n.nspname, name = c.relname
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE s.relid = c.oid AND c.oid = ANY (%s::oid[]);

-- remove --
DELETE FROM millstream.sources WHERE relid = %s;

-- add_dependency --
INSERT INTO millstream.dependencies (stream_table_id, source_relid, columns)
VALUES (%s, %s, %s::text[])
ON CONFLICT (stream_table_id, source_relid) DO UPDATE SET columns = excluded.columns;

-- widen_dependency --
INSERT INTO millstream.dependencies AS d (stream_table_id, source_relid, columns)
VALUES (%s, %s, %s::text[])
ON CONFLICT (stream_table_id, source_relid) DO UPDATE
SET columns = ARRAY(SELECT DISTINCT name FROM unnest(d.columns || excluded.columns) AS c (name) ORDER BY name);

-- remove_other_dependencies --
DELETE FROM millstream.dependencies WHERE stream_table_id = %s AND source_relid <> ALL (%s::oid[]);

-- remove_dependencies_on_dropped --
DELETE FROM millstream.dependencies AS d WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = d.source_relid);

-- needed_columns --
SELECT DISTINCT c.name
FROM millstream.dependencies AS d
CROSS JOIN LATERAL unnest(d.columns) AS c (name)
WHERE d.source_relid = %s
ORDER BY c.name;

-- consumers --
SELECT t.frontier
FROM millstream.dependencies AS d
JOIN millstream.stream_tables AS t ON t.id = d.stream_table_id
WHERE d.source_relid = %s
ORDER BY t.id;

-- wanted_captures --
-- How the readers of each source want it captured, whether all of them are populated, and whether it is a stream table
-- itself.
SELECT d.source_relid, array_agg(DISTINCT t.cdc_mode), bool_and(t.frontier IS NOT NULL),
    EXISTS (SELECT FROM millstream.stream_tables AS o WHERE o.relid = d.source_relid)
FROM millstream.dependencies AS d
JOIN millstream.stream_tables AS t ON t.id = d.stream_table_id
GROUP BY d.source_relid;

-- unread --
SELECT s.relid, s.schema_name, s.name, s.cdc_mode, s.columns, s.partitions, s.reason, s.cutovers,
    s.published_at::text::int8 AS published_at, s.published_as, s.identities, s.mode_changed_at
FROM millstream.sources AS s
WHERE NOT EXISTS (SELECT FROM millstream.dependencies AS d WHERE d.source_relid = s.relid)
ORDER BY s.relid;

-- read_only_by --
SELECT s.relid
FROM millstream.sources AS s
WHERE NOT EXISTS (
    SELECT FROM millstream.dependencies AS d WHERE d.source_relid = s.relid AND d.stream_table_id <> ALL (%s)
)
ORDER BY s.relid;

-- shapes --
-- The current columns with the number or the name of a captured column, of all sources.
SELECT DISTINCT s.relid, c.oid IS NOT NULL, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation,
    md5(x.adbin::text)
FROM millstream.sources AS s
LEFT JOIN pg_class AS c ON c.oid = s.relid
LEFT JOIN LATERAL jsonb_to_recordset(s.columns) AS k (attnum int2, name name) ON true
LEFT JOIN pg_attribute AS a
    ON a.attrelid = s.relid AND (a.attnum = k.attnum OR a.attname = k.name) AND NOT a.attisdropped
LEFT JOIN pg_attrdef AS x ON x.adrelid = a.attrelid AND x.adnum = a.attnum AND a.attgenerated <> ''
WHERE s.relid = ANY (%s::oid[])
ORDER BY s.relid, a.attnum;
