-- tables_named --
-- The tables with these names in this database.
SELECT k.schema_name, k.name, c.oid
FROM unnest(%s::text[], %s::text[]) AS k (schema_name, name)
JOIN pg_namespace AS n ON n.nspname = k.schema_name
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = k.name AND c.relkind IN ('r', 'p');

-- oids_of --
-- The oids of these qualified names, in their order; NULL for a name that does not exist.
SELECT to_regclass(name)::oid FROM unnest(%s::text[]) WITH ORDINALITY AS k (name, place) ORDER BY place;

-- partition_names --
SELECT relid, partitions, partition_names FROM millstream.sources;

-- dependencies --
SELECT stream_table_id, source_relid, columns FROM millstream.dependencies;

-- clear --
-- The records of capture in the other database, and of its oids.
DELETE FROM millstream.dependencies;
DELETE FROM millstream.watermarks;
DELETE FROM millstream.slots;
DELETE FROM millstream.sources;
DELETE FROM millstream.definition_digests;
DELETE FROM millstream.query_names;
UPDATE millstream.stream_tables SET relid = NULL, frontier = NULL, updated_at = clock_timestamp();
UPDATE millstream.blocks SET state_relid = to_regclass(format('millstream_state.state_%s_%s', stream_table_id, position))
WHERE state_relid IS NOT NULL;

-- attach --
UPDATE millstream.stream_tables SET relid = %s, row_key = %s WHERE id = %s;

-- captures --
-- The statements that drop the restored capture objects: functions with their triggers, and buffers.
SELECT format('DROP FUNCTION %s CASCADE', p.oid::regprocedure)
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = 'millstream_changes' AND p.proname LIKE 'capture%'
UNION ALL
SELECT format('DROP TABLE %I.%I', n.nspname, c.relname)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'millstream_changes' AND c.relkind = 'r' AND c.relname LIKE 'changes%'
UNION ALL
SELECT format('DROP PUBLICATION %I', p.pubname)
FROM pg_publication AS p
JOIN millstream.installation AS i ON p.pubname = 'millstream_' || left(i.id::text, 8);

-- new_installation --
-- Another id gives the slot and the publication other names, so that a copy never uses the original's.
UPDATE millstream.installation SET id = gen_random_uuid();
