-- every --
SELECT stream_table_id, upstream_id, via FROM millstream.upstreams ORDER BY stream_table_id, upstream_id;

-- remove --
DELETE FROM millstream.upstreams WHERE stream_table_id = %s;

-- of --
SELECT upstream_id, via FROM millstream.upstreams WHERE stream_table_id = %s ORDER BY upstream_id;

-- add --
-- One that was dropped meanwhile is read no more.
INSERT INTO millstream.upstreams (stream_table_id, upstream_id, via)
SELECT %s, t.id, %s FROM millstream.stream_tables AS t WHERE t.id = %s;

-- lock --
-- Two sessions that each add an edge could close a cycle that neither sees.
LOCK TABLE millstream.upstreams IN SHARE ROW EXCLUSIVE MODE;

-- names --
SELECT id, schema_name || '.' || name FROM millstream.stream_tables;

-- among --
-- The stream tables whose tables are among these relations.
SELECT relid, id FROM millstream.stream_tables WHERE relid = ANY (%s::oid[]);

-- naming --
SELECT id, canonical_query FROM millstream.stream_tables WHERE position(%s IN canonical_query) > 0 AND name <> %s ORDER BY id;
