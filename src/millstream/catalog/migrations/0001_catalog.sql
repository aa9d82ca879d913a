-- The catalog: what Millstream knows about the stream tables of this database.
--
-- Three schemas: the catalog itself, the change buffers of the sources, the state of blocks. The statements of a
-- released migration are never changed; a later migration changes its objects.

CREATE SCHEMA millstream;
COMMENT ON SCHEMA millstream IS 'Millstream: stream tables and how they are kept';
CREATE SCHEMA millstream_changes;
COMMENT ON SCHEMA millstream_changes IS 'Millstream: changes captured from the sources';
CREATE SCHEMA millstream_state;
COMMENT ON SCHEMA millstream_state IS 'Millstream: state kept by the blocks of stream tables';

CREATE TABLE millstream.installation (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    installed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE millstream.installation IS 'This installation; one row, for ever';
CREATE UNIQUE INDEX installation_has_one_row ON millstream.installation ((true));
INSERT INTO millstream.installation DEFAULT VALUES;

CREATE TABLE millstream.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE millstream.migrations IS 'Which migrations made this catalog';

CREATE TABLE millstream.settings (
    name text PRIMARY KEY,
    value text NOT NULL
);
COMMENT ON TABLE millstream.settings IS 'Settings of this database; they give way to the environment and the command line';

CREATE TABLE millstream.stream_tables (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schema_name text NOT NULL,
    name text NOT NULL,
    relid oid UNIQUE,
    query text NOT NULL,
    canonical_query text NOT NULL,
    schedule text NOT NULL,
    refresh_mode text NOT NULL
        CONSTRAINT stream_tables_refresh_mode_check CHECK (refresh_mode IN ('AUTO', 'DIFFERENTIAL', 'FULL')),
    status text NOT NULL DEFAULT 'INITIALIZING'
        CONSTRAINT stream_tables_status_check CHECK (status IN ('INITIALIZING', 'ACTIVE', 'SUSPENDED', 'ERROR')),
    cdc_mode text
        CONSTRAINT stream_tables_cdc_mode_check CHECK (cdc_mode IN ('trigger', 'auto', 'wal')),
    frontier pg_snapshot,
    data_timestamp timestamptz,
    last_refresh_at timestamptz,
    last_action text,
    last_reason text,
    consecutive_errors integer NOT NULL DEFAULT 0,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    created_by name NOT NULL DEFAULT current_user,
    UNIQUE (schema_name, name)
);
COMMENT ON TABLE millstream.stream_tables IS 'Every stream table, its query and its frontier';

CREATE TABLE millstream.sources (
    relid oid PRIMARY KEY,
    schema_name text NOT NULL,
    name text NOT NULL,
    cdc_mode text NOT NULL DEFAULT 'TRIGGER'
        CONSTRAINT sources_cdc_mode_check CHECK (cdc_mode IN ('TRIGGER', 'TRANSITIONING', 'WAL')),
    columns jsonb NOT NULL,
    members oid[] NOT NULL DEFAULT '{}',
    reason text,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE millstream.sources IS 'Every table that changes are captured from, and what is captured of it';

CREATE TABLE millstream.dependencies (
    stream_table_id bigint NOT NULL REFERENCES millstream.stream_tables ON DELETE CASCADE,
    source_relid oid NOT NULL REFERENCES millstream.sources,
    columns text[] NOT NULL,
    PRIMARY KEY (stream_table_id, source_relid)
);
COMMENT ON TABLE millstream.dependencies IS 'Which stream table reads which columns of which source';
CREATE INDEX dependencies_source_relid_idx ON millstream.dependencies (source_relid);

CREATE TABLE millstream.blocks (
    stream_table_id bigint NOT NULL REFERENCES millstream.stream_tables ON DELETE CASCADE,
    position integer NOT NULL,
    name text NOT NULL,
    head text NOT NULL,
    state_relid oid,
    plan text NOT NULL,
    PRIMARY KEY (stream_table_id, position)
);
COMMENT ON TABLE millstream.blocks IS 'The chain of blocks that each query was cut into';

CREATE TABLE millstream.refresh_history (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream_table_id bigint NOT NULL REFERENCES millstream.stream_tables ON DELETE CASCADE,
    action text NOT NULL
        CONSTRAINT refresh_history_action_check
        CHECK (action IN ('NO_DATA', 'DIFFERENTIAL', 'FULL', 'REINITIALIZE', 'SKIP')),
    reason text NOT NULL,
    status text NOT NULL
        CONSTRAINT refresh_history_status_check CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED')),
    initiated_by text NOT NULL
        CONSTRAINT refresh_history_initiated_by_check CHECK (initiated_by IN ('SCHEDULER', 'MANUAL', 'INITIAL')),
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    data_timestamp timestamptz,
    frontier pg_snapshot,
    rows_read bigint NOT NULL DEFAULT 0,
    rows_inserted bigint NOT NULL DEFAULT 0,
    rows_updated bigint NOT NULL DEFAULT 0,
    rows_deleted bigint NOT NULL DEFAULT 0,
    spark_jobs integer NOT NULL DEFAULT 0,
    inputs jsonb NOT NULL DEFAULT '[]',
    phases jsonb NOT NULL DEFAULT '{}',
    error jsonb
);
COMMENT ON TABLE millstream.refresh_history IS 'What each refresh did, why, and what it cost';
CREATE INDEX refresh_history_stream_table_id_idx ON millstream.refresh_history (stream_table_id, id DESC);

-- Called by a capture function before it writes: are these columns still as recorded? Both functions are in the schema
-- of the capture functions, so that no DROP SCHEMA drops only some of them.
CREATE FUNCTION millstream_changes.columns_stand(
    source regclass, attnums int2[], names name[], types oid[], typmods int4[], collations oid[]
) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN count(*) = cardinality(attnums)
        FROM unnest(attnums, names, types, typmods, collations)
            AS recorded (attnum, attname, atttypid, atttypmod, attcollation)
        JOIN pg_attribute AS now USING (attnum, attname, atttypid, atttypmod, attcollation)
        WHERE now.attrelid = source AND NOT now.attisdropped;
END
$$;
COMMENT ON FUNCTION millstream_changes.columns_stand IS 'Whether the columns of a source are as they were recorded, asked now';

-- The same, evaluated once until the source is altered. It is IMMUTABLE on purpose: with constant arguments its result
-- is folded into the cached plan of the calling expression, and the regclass constant makes PostgreSQL discard that
-- plan whenever the source's definition changes. That saves two thirds of the cost of capture of a single-row
-- statement. The inner function is VOLATILE so that it uses a new snapshot, taken while the writer holds its lock.
-- Never call it under REPEATABLE READ: the result for the old snapshot would be cached.
CREATE FUNCTION millstream_changes.columns_stood(
    source regclass, attnums int2[], names name[], types oid[], typmods int4[], collations oid[]
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN millstream_changes.columns_stand(source, attnums, names, types, typmods, collations);
END
$$;
COMMENT ON FUNCTION millstream_changes.columns_stood IS 'The same, remembered by each session until the source is altered';
REVOKE ALL ON FUNCTION millstream_changes.columns_stand, millstream_changes.columns_stood FROM PUBLIC;
