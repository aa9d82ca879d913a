-- Schema changes: what a query's text calls the relations and columns that it reads.

-- A query is kept as text. With this, a relation or a column that gets another name is found by its oid or number, as in a
-- view of PostgreSQL's, and the text is written anew.
CREATE TABLE millstream.query_names (
    stream_table_id bigint NOT NULL REFERENCES millstream.stream_tables ON DELETE CASCADE,
    relid oid NOT NULL,
    schema_name name NOT NULL,
    name name NOT NULL,
    attnums int2[] NOT NULL,
    column_names name[] NOT NULL,
    PRIMARY KEY (stream_table_id, relid)
);
COMMENT ON TABLE millstream.query_names IS 'The relations that the text of a query names, with the names that it uses for them and for their columns';

-- What a block keeps follows the types of its sources, which its printed plan does not tell.
ALTER TABLE millstream.blocks ADD COLUMN storage text;
COMMENT ON COLUMN millstream.blocks.storage IS 'Digest of the statements that made what the block keeps; NULL in catalogs of older versions';
