-- Names and comments in the words of the glossary: partitions, cutovers, WAL, definition digests.

ALTER TABLE millstream.sources RENAME COLUMN members TO partitions;
ALTER TABLE millstream.sources RENAME COLUMN member_names TO partition_names;
ALTER TABLE millstream.sources RENAME COLUMN turns TO cutovers;
ALTER TABLE millstream.sources RENAME COLUMN turned_at TO mode_changed_at;
COMMENT ON TABLE millstream.sources IS 'Every table that changes are captured from, and which columns are captured';
COMMENT ON COLUMN millstream.sources.partitions IS 'Its partitions and inheritance children, to any depth';
COMMENT ON COLUMN millstream.sources.partition_names IS 'The names of its partitions, in their order';
COMMENT ON COLUMN millstream.sources.cutovers IS 'Cutovers that some reader has not passed, oldest first: a snapshot and an origin. For transactions that the snapshot sees and no earlier one does, rows of that origin are read';
COMMENT ON COLUMN millstream.sources.published_at IS 'A transaction id: WAL holds every change of all transactions that began after it';
COMMENT ON COLUMN millstream.sources.published_as IS 'Its entries in the publication; they change when somebody alters the publication';
COMMENT ON COLUMN millstream.sources.identities IS 'The replica identities that its tables had before Millstream set them to FULL';
COMMENT ON COLUMN millstream.sources.mode_changed_at IS 'When cdc_mode last changed';

ALTER TABLE millstream.stream_tables RENAME COLUMN asks_clock TO reads_clock;
COMMENT ON COLUMN millstream.stream_tables.reads_clock IS 'Its query reads the current time; NULL if unknown';
COMMENT ON COLUMN millstream.stream_tables.planned_by IS 'Version stamp of the planner that made its blocks; NULL if unknown';
COMMENT ON COLUMN millstream.stream_tables.row_key IS 'The key of its rows, as derived when the table was created';
COMMENT ON COLUMN millstream.stream_tables.cut_at IS 'Time of the cut of its last refresh';
COMMENT ON COLUMN millstream.stream_tables.data_timestamp IS 'Everything committed before this time is in its rows: the earliest of its own cut and the data timestamps of the stream tables it read there';
COMMENT ON COLUMN millstream.stream_tables.is_guarded IS 'Its guard was installed; if the guard is missing, others may have written to the table';
COMMENT ON COLUMN millstream.stream_tables.transient_errors IS 'Consecutive refreshes that failed for a transient reason; they never suspend the stream table';
COMMENT ON COLUMN millstream.stream_tables.last_transient_error IS 'The last transient error; NULL after a successful refresh';

ALTER TABLE millstream.grounds RENAME TO definition_digests;
ALTER TABLE millstream.definition_digests RENAME CONSTRAINT grounds_pkey TO definition_digests_pkey;
ALTER TABLE millstream.definition_digests RENAME CONSTRAINT grounds_kind_check TO definition_digests_kind_check;
ALTER TABLE millstream.definition_digests
    RENAME CONSTRAINT grounds_stream_table_id_fkey TO definition_digests_stream_table_id_fkey;
COMMENT ON TABLE millstream.definition_digests IS 'Digests of the definitions under each query (tables, views, functions, types) when its rows were last computed in full';

COMMENT ON SCHEMA millstream IS 'Millstream: the catalog of stream tables';
COMMENT ON SCHEMA millstream_state IS 'Millstream: state of the blocks of stream tables';
COMMENT ON TABLE millstream.installation IS 'This installation; exactly one row';
COMMENT ON TABLE millstream.migrations IS 'The migrations that were applied to this catalog';
COMMENT ON COLUMN millstream.installation.system_identifier IS 'System identifier of the server; NULL if the service role may not read it';
COMMENT ON COLUMN millstream.installation.database_oid IS 'Oid of the database; NULL until the identity is recorded';
COMMENT ON COLUMN millstream.installation.catalog_oids IS 'Oids of the first tables of this catalog; they differ in a restored database';
COMMENT ON TABLE millstream.blocks IS 'The chain of blocks that each query was split into';
COMMENT ON TABLE millstream.slots IS 'The replication slot of this database, and the position before which all changes are durable in the buffers';
COMMENT ON COLUMN millstream.slots.owner IS 'The process that reads from the slot';
COMMENT ON COLUMN millstream.slots.epoch IS 'Number of connections that have claimed the slot; only the latest may write to the buffers';
COMMENT ON TABLE millstream.watermarks IS 'The last change of each source that is in its buffer: commit LSN of the transaction, and number of the change in it';
COMMENT ON TABLE millstream.locks IS 'One row per stream table; the process that has it locked fills, refreshes or drops that stream table';
COMMENT ON TABLE millstream.guard_secret IS 'The secret that a refresh proves itself with to the guards of stream tables; exactly one row';
COMMENT ON FUNCTION millstream_changes.columns_stand IS 'True if the columns of a source are as recorded now';
COMMENT ON FUNCTION millstream_changes.columns_stood IS 'columns_stand, remembered by each session until the source is altered';
COMMENT ON FUNCTION millstream_changes.write_permit IS 'The value of the setting millstream.write_permit that lets a statement of this transaction write to a stream table';
COMMENT ON FUNCTION millstream_changes.guard IS 'Refuses every write to a stream table except by a refresh';
COMMENT ON VIEW millstream.stream_tables_info IS 'Status of each stream table; readable by members of millstream_reader';

-- Two lags, since they have two causes: WAL that is not yet confirmed waits for Millstream; WAL that is confirmed and still
-- retained waits for the oldest transaction, which `held_by` names.
CREATE OR REPLACE FUNCTION millstream.slot_health()
RETURNS TABLE (
    slot_name text, active boolean, wal_status text, invalidation_reason text, confirmed_lag_bytes bigint,
    restart_lag_bytes bigint, safe_wal_size bigint, spilled_bytes bigint, held_by text, trouble text
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        s.name, coalesce(r.active, false), r.wal_status, to_jsonb(r) ->> 'invalidation_reason',
        (e.lsn - r.confirmed_flush_lsn)::bigint, (e.lsn - r.restart_lsn)::bigint, r.safe_wal_size, st.spill_bytes,
        CASE WHEN e.lsn - r.restart_lsn > e.lsn - r.confirmed_flush_lsn + 16777216 THEN o.holder END,
        CASE
            WHEN r.slot_name IS NULL THEN 'The slot does not exist.'
            WHEN r.wal_status = 'lost' OR to_jsonb(r) ->> 'invalidation_reason' IS NOT NULL
                THEN 'The server has invalidated the slot.'
            WHEN NOT r.active THEN 'Nobody reads from the slot; the server retains WAL for it.'
        END
    FROM millstream.slots AS s
    LEFT JOIN pg_replication_slots AS r ON r.slot_name = s.name
    LEFT JOIN pg_stat_replication_slots AS st ON st.slot_name = s.name
    CROSS JOIN LATERAL (
        SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END AS lsn
    ) AS e
    LEFT JOIN LATERAL (
        SELECT h.holder FROM (
            SELECT a.backend_xid AS xid, format(
                'process %s, transaction %s since %s%s', a.pid, a.backend_xid, a.xact_start,
                coalesce(' (' || nullif(a.application_name, '') || ')', '')
            ) AS holder
            FROM pg_stat_activity AS a WHERE a.backend_xid IS NOT NULL
            UNION ALL
            SELECT p.transaction, format('prepared transaction %L since %s', p.gid, p.prepared) FROM pg_prepared_xacts AS p
        ) AS h
        ORDER BY age(h.xid) DESC
        LIMIT 1
    ) AS o ON true
$$;
COMMENT ON FUNCTION millstream.slot_health IS 'State of the replication slot of this database, and which transaction retains WAL if not Millstream';

DROP FUNCTION millstream.check_cdc_health();
CREATE FUNCTION millstream.check_cdc_health()
RETURNS TABLE (
    source regclass, cdc_mode text, since timestamptz, slot_name text, slot_lag_bytes bigint, pending_cutovers integer,
    reason text, alert text
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        s.relid::regclass, s.cdc_mode, s.mode_changed_at, h.slot_name, h.confirmed_lag_bytes, jsonb_array_length(s.cutovers),
        s.reason,
        CASE
            WHEN c.oid IS NULL THEN 'The table was dropped.'
            WHEN s.cdc_mode = 'TRIGGER' THEN NULL
            WHEN h.slot_name IS NULL THEN 'There is no slot.'
            ELSE h.trouble
        END
    FROM millstream.sources AS s
    LEFT JOIN pg_class AS c ON c.oid = s.relid
    LEFT JOIN millstream.slot_health() AS h ON s.cdc_mode <> 'TRIGGER' OR s.cutovers <> '[]'
    ORDER BY s.relid
$$;
COMMENT ON FUNCTION millstream.check_cdc_health IS 'How each source is captured, and what is wrong with its capture';
REVOKE ALL ON FUNCTION millstream.check_cdc_health FROM PUBLIC;
