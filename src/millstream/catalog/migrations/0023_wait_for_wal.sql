-- `wait_visible` for a source captured from WAL waits until everything before a position is stored. On an idle server
-- the reader seldom stores its position, since that writes WAL itself. So the waiting session asks for it. If no
-- service runs, it raises an error.

CREATE FUNCTION millstream.is_captured(reached pg_lsn) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (SELECT FROM millstream.slots WHERE cursor < $1)
$$;
COMMENT ON FUNCTION millstream.is_captured IS 'True if WAL capture has stored everything before a position, or captures nothing';

CREATE OR REPLACE PROCEDURE millstream.wait_visible(name text, timeout interval DEFAULT '1 minute', seen pg_snapshot DEFAULT pg_current_snapshot())
LANGUAGE plpgsql AS $$
DECLARE
    -- A snapshot does not tell whether it sees the transaction that took it: what that has written so far is committed below.
    own pg_catalog.xid8 := pg_catalog.pg_current_xact_id_if_assigned();
    deadline pg_catalog.timestamptz;
    pause pg_catalog.float8 := 0.002;
    reached pg_catalog.pg_lsn;
    is_visible pg_catalog.bool;
    asked_until pg_catalog.timestamptz := '-infinity';
BEGIN
    -- In a transaction of the caller this is an error, and must be one: nothing that it has written can be waited for.
    COMMIT;
    deadline := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) coalesce(timeout, '1 minute');
    -- The commits of all transactions that are seen are in WAL before this position.
    reached := CASE
        WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn()
    END;
    LOOP
        -- The name is looked up each time: the table of a stream table may be replaced.
        is_visible := millstream.is_visible(pg_catalog.to_regclass(name)::pg_catalog.oid, seen, own, reached);
        IF is_visible IS NULL THEN
            RAISE EXCEPTION 'stream table "%" does not exist', name USING
                ERRCODE = 'MS202', HINT = 'See the names with: SELECT schema_name, name FROM millstream.stream_tables_info.';
        ELSIF is_visible THEN
            RETURN;
        ELSIF pg_catalog.clock_timestamp() OPERATOR(pg_catalog.>) deadline THEN
            RAISE EXCEPTION 'stream table "%" does not have all changes yet', name USING
                ERRCODE = 'MS505',
                HINT = CASE
                    WHEN millstream.service_is_running()
                        THEN 'Wait longer, or ask for a refresh: SELECT millstream.refresh_stream_table(...). One that it reads may be suspended or manual.'
                    ELSE 'No service is running on this database. Start one: millstream run.'
                END;
        END IF;
        -- Repeated: the position may not have been flushed when the service looked. A standby cannot notify.
        IF pg_catalog.clock_timestamp() OPERATOR(pg_catalog.>) asked_until
            AND NOT pg_catalog.pg_is_in_recovery() AND NOT millstream.is_captured(reached)
        THEN
            PERFORM pg_catalog.pg_notify('millstream_wake', 'wal');
            asked_until := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) '1 second'::pg_catalog.interval;
        END IF;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(pause);
        pause := LEAST(pause OPERATOR(pg_catalog.*) 1.5, 0.1);
    END LOOP;
END
$$;

REVOKE ALL ON FUNCTION millstream.is_captured FROM PUBLIC;
