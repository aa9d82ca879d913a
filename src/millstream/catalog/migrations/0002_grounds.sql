-- The definitions with which a stream table was created and on which it depends, besides the rows of its sources.

ALTER TABLE millstream.stream_tables ADD COLUMN row_key jsonb;
COMMENT ON COLUMN millstream.stream_tables.row_key IS 'What tells its rows apart, as it was when the table was created';

CREATE TABLE millstream.grounds (
    stream_table_id bigint NOT NULL REFERENCES millstream.stream_tables ON DELETE CASCADE,
    kind text NOT NULL
        CONSTRAINT grounds_kind_check CHECK (kind IN ('table', 'storage', 'view', 'function', 'type')),
    objid oid NOT NULL,
    digest text NOT NULL,
    PRIMARY KEY (stream_table_id, kind, objid)
);
COMMENT ON TABLE millstream.grounds IS 'The tables, views, functions and types under each query, as they were when its rows were last computed whole';
