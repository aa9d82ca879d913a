-- Cutovers between triggers and WAL: which of them counts for which transaction of a source.

ALTER TABLE millstream.sources
    ADD COLUMN turns jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN published_at xid8,
    ADD COLUMN published_as oid[] NOT NULL DEFAULT '{}',
    ADD COLUMN identities jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN turned_at timestamptz NOT NULL DEFAULT now();
COMMENT ON COLUMN millstream.sources.turns IS 'Hand-overs that some reader has not passed: of the transactions that each snapshot sees, and none before it, the rows of that origin count';
COMMENT ON COLUMN millstream.sources.published_at IS 'The log holds all of every transaction that began after this one';
COMMENT ON COLUMN millstream.sources.published_as IS 'The entries of the publication, which are others after it was altered';
COMMENT ON COLUMN millstream.sources.identities IS 'The replica identities that its tables had before we set them to FULL';
COMMENT ON COLUMN millstream.sources.turned_at IS 'When its mode last changed';

-- The origin of a row of a buffer: t a trigger, l WAL, m a mark of Millstream, which counts in any mode.
DO $$
DECLARE
    buffer regclass;
BEGIN
    FOR buffer IN SELECT to_regclass('millstream_changes.changes_' || relid) FROM millstream.sources LOOP
        IF buffer IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %s ADD COLUMN origin "char" NOT NULL DEFAULT ''t''', buffer);
        END IF;
    END LOOP;
END
$$;

-- The state of the slot. There are two lags, since they have two causes: WAL that is not yet confirmed waits for
-- Millstream; WAL that is confirmed and still retained waits for the oldest transaction, which is named.
CREATE FUNCTION millstream.slot_health()
RETURNS TABLE (
    slot_name text, active boolean, wal_status text, invalidation_reason text, confirmed_lag_bytes bigint,
    restart_lag_bytes bigint, safe_wal_size bigint, spilled_bytes bigint, held_by text, trouble text
) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        s.name, coalesce(r.active, false), r.wal_status, to_jsonb(r) ->> 'invalidation_reason',
        (e.lsn - r.confirmed_flush_lsn)::bigint, (e.lsn - r.restart_lsn)::bigint, r.safe_wal_size, st.spill_bytes,
        CASE WHEN e.lsn - r.restart_lsn > e.lsn - r.confirmed_flush_lsn + 16777216 THEN o.holder END,
        CASE
            WHEN r.slot_name IS NULL THEN 'The slot does not exist.'
            WHEN r.wal_status = 'lost' OR to_jsonb(r) ->> 'invalidation_reason' IS NOT NULL
                THEN 'The server has invalidated the slot.'
            WHEN NOT r.active THEN 'Nobody reads from the slot; the server keeps the log for it.'
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
COMMENT ON FUNCTION millstream.slot_health IS 'How the replication slot of this database stands, and who holds the log where that is not us';

-- Every source: how it is captured, since when, why, and what is wrong with its capture.
CREATE FUNCTION millstream.check_cdc_health()
RETURNS TABLE (
    source regclass, cdc_mode text, since timestamptz, slot_name text, slot_lag_bytes bigint, pending_turns integer,
    reason text, alert text
) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        s.relid::regclass, s.cdc_mode, s.turned_at, h.slot_name, h.confirmed_lag_bytes, jsonb_array_length(s.turns),
        s.reason,
        CASE
            WHEN c.oid IS NULL THEN 'The table was dropped.'
            WHEN s.cdc_mode = 'TRIGGER' THEN NULL
            WHEN h.slot_name IS NULL THEN 'There is no slot.'
            ELSE h.trouble
        END
    FROM millstream.sources AS s
    LEFT JOIN pg_class AS c ON c.oid = s.relid
    LEFT JOIN millstream.slot_health() AS h ON s.cdc_mode <> 'TRIGGER' OR s.turns <> '[]'
    ORDER BY s.relid
$$;
COMMENT ON FUNCTION millstream.check_cdc_health IS 'How each source is captured, and what is wrong with that';
REVOKE ALL ON FUNCTION millstream.slot_health, millstream.check_cdc_health FROM PUBLIC;
