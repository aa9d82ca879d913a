-- STABLE functions of users that the creator of a stream table declares to depend on their arguments alone.
ALTER TABLE millstream.stream_tables ADD COLUMN assume_immutable text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN millstream.stream_tables.assume_immutable IS 'Functions that its query calls and that PostgreSQL declares STABLE: its creator says that they depend on their arguments alone';
