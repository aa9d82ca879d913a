-- every --
SELECT stream_table_id, upstream_id, via FROM millstream.upstreams ORDER BY stream_table_id, upstream_id;

-- older_than_cut --
-- The upstreams of these that were not refreshed in the cut of that time, directly or through others that were: (reader, id,
-- name, status, data timestamp, last error). What stands under one that was not refreshed does not matter.
WITH RECURSIVE under (reader, id) AS (
    SELECT stream_table_id, upstream_id FROM millstream.upstreams WHERE stream_table_id = ANY (%(readers)s)
    UNION
    SELECT r.reader, u.upstream_id
    FROM under AS r
    JOIN millstream.stream_tables AS t ON t.id = r.id AND t.cut_at = %(cut_at)s
    JOIN millstream.upstreams AS u ON u.stream_table_id = r.id
)
SELECT r.reader, t.id, t.schema_name || '.' || t.name, t.status, t.data_timestamp, t.last_error
FROM under AS r
JOIN millstream.stream_tables AS t ON t.id = r.id
WHERE t.cut_at IS DISTINCT FROM %(cut_at)s
ORDER BY t.data_timestamp NULLS FIRST, t.id;

-- remove --
DELETE FROM millstream.upstreams WHERE stream_table_id = %s;

-- of --
SELECT upstream_id, via FROM millstream.upstreams WHERE stream_table_id = %s ORDER BY upstream_id;

-- add --
-- One that was dropped meanwhile is no longer read.
INSERT INTO millstream.upstreams (stream_table_id, upstream_id, via)
SELECT %s, t.id, %s FROM millstream.stream_tables AS t WHERE t.id = %s;

-- lock --
-- Two sessions that each add an edge could close a cycle that neither sees.
LOCK TABLE millstream.upstreams IN SHARE ROW EXCLUSIVE MODE;

-- names --
SELECT id, schema_name || '.' || name FROM millstream.stream_tables;

-- stream_tables_of --
-- The stream tables whose tables are among these relations.
SELECT relid, id FROM millstream.stream_tables WHERE relid = ANY (%s::oid[]);

-- queries_with_name --
SELECT id, canonical_query FROM millstream.stream_tables WHERE position(%s IN canonical_query) > 0 AND name <> %s ORDER BY id;
