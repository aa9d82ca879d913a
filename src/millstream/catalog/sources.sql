-- put --
INSERT INTO millstream.sources AS s (
    relid, schema_name, name, cdc_mode, columns, members, reason, turns, published_at, published_as, identities, member_names
)
VALUES (
    %(relid)s, %(schema)s, %(name)s, %(mode)s, %(columns)s, %(members)s::oid[], %(reason)s, %(turns)s,
    %(published_at)s::text::xid8, %(published_as)s::oid[], %(identities)s,
    ARRAY(
        SELECT coalesce(quote_ident(n.nspname) || '.' || quote_ident(c.relname), '')
        FROM unnest(%(members)s::oid[]) WITH ORDINALITY AS m (oid, place)
        LEFT JOIN pg_class AS c ON c.oid = m.oid
        LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
        ORDER BY m.place
    )
)
ON CONFLICT (relid) DO UPDATE SET
    schema_name = excluded.schema_name, name = excluded.name, cdc_mode = excluded.cdc_mode,
    columns = excluded.columns, members = excluded.members, reason = excluded.reason, turns = excluded.turns,
    published_at = excluded.published_at, published_as = excluded.published_as, identities = excluded.identities,
    member_names = excluded.member_names,
    turned_at = CASE WHEN s.cdc_mode = excluded.cdc_mode THEN s.turned_at ELSE now() END;

-- reserve --
INSERT INTO millstream.sources (relid, schema_name, name, columns)
VALUES (%s, %s, %s, '[]')
ON CONFLICT (relid) DO NOTHING;

-- get --
SELECT relid, schema_name, name, cdc_mode, columns, members, reason, turns, published_at::text::int8, published_as, identities,
    turned_at
FROM millstream.sources WHERE relid = %s;

-- every --
SELECT relid, schema_name, name, cdc_mode, columns, members, reason, turns, published_at::text::int8, published_as, identities,
    turned_at
FROM millstream.sources ORDER BY relid;

-- read_by --
SELECT s.relid, s.schema_name, s.name, s.cdc_mode, s.columns, s.members, s.reason, s.turns, s.published_at::text::int8,
    s.published_as, s.identities, s.turned_at
FROM millstream.sources AS s
JOIN millstream.dependencies AS d ON d.source_relid = s.relid
WHERE d.stream_table_id = %s
ORDER BY s.relid;

-- read_by_each --
SELECT d.stream_table_id, s.relid, s.schema_name, s.name, s.cdc_mode, s.columns, s.members, s.reason, s.turns, s.published_at::text::int8,
    s.published_as, s.identities, s.turned_at
FROM millstream.sources AS s
JOIN millstream.dependencies AS d ON d.source_relid = s.relid
WHERE d.stream_table_id = ANY (%s)
ORDER BY d.stream_table_id, s.relid;

-- hold --
-- As it is now, and nobody changes it meanwhile.
SELECT relid, schema_name, name, cdc_mode, columns, members, reason, turns, published_at::text::int8, published_as, identities,
    turned_at
FROM millstream.sources WHERE relid = %s FOR NO KEY UPDATE;

-- explain --
UPDATE millstream.sources SET reason = %s WHERE relid = %s;

-- remove --
DELETE FROM millstream.sources WHERE relid = %s;

-- depend --
INSERT INTO millstream.dependencies (stream_table_id, source_relid, columns)
VALUES (%s, %s, %s::text[])
ON CONFLICT (stream_table_id, source_relid) DO UPDATE SET columns = excluded.columns;

-- depend_on_no_other --
DELETE FROM millstream.dependencies WHERE stream_table_id = %s AND source_relid <> ALL (%s::oid[]);

-- needed --
-- The columns that some stream table reads.
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

-- wanted_modes --
-- Of each source that stream tables read: how they want it captured, and whether all of them are filled.
SELECT d.source_relid, array_agg(DISTINCT t.cdc_mode), bool_and(t.frontier IS NOT NULL),
    EXISTS (SELECT FROM millstream.stream_tables AS o WHERE o.relid = d.source_relid)
FROM millstream.dependencies AS d
JOIN millstream.stream_tables AS t ON t.id = d.stream_table_id
GROUP BY d.source_relid;

-- unread --
SELECT s.relid, s.schema_name, s.name, s.cdc_mode, s.columns, s.members, s.reason, s.turns, s.published_at::text::int8,
    s.published_as, s.identities, s.turned_at
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
-- What is there now of the columns that are captured, by number and by name, for all sources at once.
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
