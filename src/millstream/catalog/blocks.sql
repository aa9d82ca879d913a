-- add --
INSERT INTO millstream.blocks (stream_table_id, position, name, head, state_relid, plan, storage)
VALUES (%s, %s, %s, %s, %s, %s, %s);

-- of --
SELECT position, name, head, state_relid, plan, storage
FROM millstream.blocks
WHERE stream_table_id = %s
ORDER BY position;

-- remove --
DELETE FROM millstream.blocks WHERE stream_table_id = %s;
