-- Capture from the write-ahead log: the replication slot, and the last change in the buffer of each source.

CREATE TABLE millstream.slots (
    name text PRIMARY KEY,
    publication text NOT NULL,
    publication_oid oid NOT NULL,
    database_oid oid NOT NULL,
    system_identifier text NOT NULL,
    timeline integer NOT NULL,
    created_lsn pg_lsn NOT NULL,
    cursor pg_lsn NOT NULL,
    owner text,
    epoch bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
COMMENT ON TABLE millstream.slots IS 'The replication slot of this database, as it was made, and up to where all of it is durable';
COMMENT ON COLUMN millstream.slots.owner IS 'The process that reads from it';
COMMENT ON COLUMN millstream.slots.epoch IS 'Counts the connections that have read from it; only the last may store';

CREATE TABLE millstream.watermarks (
    slot text NOT NULL REFERENCES millstream.slots ON DELETE CASCADE,
    source_relid oid NOT NULL REFERENCES millstream.sources ON DELETE CASCADE,
    commit_lsn pg_lsn NOT NULL,
    ordinal bigint NOT NULL,
    PRIMARY KEY (slot, source_relid)
) WITH (fillfactor = 50);
COMMENT ON TABLE millstream.watermarks IS 'The last change of each source that is in its buffer: the transaction by its commit, the change by its number in it';
