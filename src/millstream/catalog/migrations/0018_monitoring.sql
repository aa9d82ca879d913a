-- Settings in the database, checked when they are written; and functions for monitoring.

CREATE TABLE millstream.setting_definitions (
    name text PRIMARY KEY,
    kind text NOT NULL CONSTRAINT setting_definitions_kind_check
        CHECK (kind IN ('bool', 'integer', 'number', 'duration', 'size', 'choice', 'other')),
    minimum numeric,
    minimum_is_allowed boolean,
    maximum numeric,
    choices text[],
    less_than text,
    default_value text NOT NULL,
    meaning text NOT NULL,
    refusal text
);
COMMENT ON TABLE millstream.setting_definitions IS 'The settings that this version knows; written by every install, read by the check of millstream.settings';
COMMENT ON COLUMN millstream.setting_definitions.minimum IS 'Of a duration in milliseconds, of a size in bytes';
COMMENT ON COLUMN millstream.setting_definitions.less_than IS 'Another setting, whose value must be greater';
COMMENT ON COLUMN millstream.setting_definitions.refusal IS 'Why the database cannot set it; NULL if it can';
COMMENT ON TABLE millstream.settings IS 'Settings of this database; they give way to code, environment and settings file';

-- A value as a number, such as milliseconds or bytes; NULL if it does not have the form of its kind.
CREATE FUNCTION millstream.setting_amount(kind text, value text) RETURNS numeric
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE kind
        WHEN 'integer' THEN (regexp_match(value, '^-?[0-9]{1,18}$'))[1]::numeric
        WHEN 'number' THEN (regexp_match(value, '^-?[0-9]{1,15}(?:\.[0-9]{1,15})?$'))[1]::numeric
        WHEN 'duration' THEN (
            SELECT m[1]::numeric * CASE m[2] WHEN 'ms' THEN 1 WHEN 's' THEN 1000 WHEN 'm' THEN 60000 WHEN 'h' THEN 3600000 ELSE 86400000 END
            FROM regexp_match(lower(value), '^([0-9]{1,9}) *(ms|s|m|h|d)$') AS m
        )
        WHEN 'size' THEN (
            SELECT m[1]::numeric * CASE m[2] WHEN 'kB' THEN 1024 WHEN 'MB' THEN 1048576 WHEN 'GB' THEN 1073741824 WHEN 'TB' THEN 1099511627776 ELSE 1 END
            FROM regexp_match(value, '^([0-9]{1,15}) *(B|kB|MB|GB|TB|)$') AS m
        )
    END
$$;
COMMENT ON FUNCTION millstream.setting_amount IS 'The value of a setting as a number: milliseconds of a duration, bytes of a size; NULL if it is written wrongly';

CREATE FUNCTION millstream.check_setting() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition millstream.setting_definitions;
    amount numeric := NULL;
    expected text := NULL;
BEGIN
    SELECT d.* INTO definition FROM millstream.setting_definitions AS d WHERE d.name = NEW.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown setting %', NEW.name USING ERRCODE = 'invalid_parameter_value', HINT = (
            SELECT 'The settings are: ' || string_agg(d.name, ', ' ORDER BY d.name) || '.'
            FROM millstream.setting_definitions AS d WHERE d.refusal IS NULL
        );
    END IF;
    IF definition.refusal IS NOT NULL THEN
        RAISE EXCEPTION 'setting % cannot come from the database', NEW.name USING
            ERRCODE = 'invalid_parameter_value', DETAIL = definition.refusal,
            HINT = format('Set MILLSTREAM_%s in the environment of the service, or %s in its settings file.', upper(NEW.name), NEW.name);
    END IF;
    amount := millstream.setting_amount(definition.kind, NEW.value);
    expected := CASE
        WHEN definition.kind = 'bool' AND lower(NEW.value) NOT IN ('true', 'false', 'on', 'off', 'yes', 'no', '1', '0')
            THEN 'true or false'
        WHEN definition.kind = 'choice' AND NEW.value <> ALL (definition.choices)
            THEN 'one of ' || array_to_string(definition.choices, ', ')
        WHEN definition.kind = 'integer' AND amount IS NULL THEN 'a whole number'
        WHEN definition.kind = 'number' AND amount IS NULL THEN 'a number'
        WHEN definition.kind = 'duration' AND amount IS NULL THEN 'a number and a unit, such as 500ms, 1s, 5m, 1h or 2d'
        WHEN definition.kind = 'size' AND amount IS NULL
            THEN 'a number and a unit (B, kB, MB, GB or TB), such as 100MB'
        WHEN amount < definition.minimum OR (amount = definition.minimum AND NOT definition.minimum_is_allowed)
            OR amount > definition.maximum
            THEN concat_ws(
                ' and ',
                CASE WHEN definition.minimum_is_allowed THEN 'at least ' ELSE 'more than ' END || definition.minimum,
                'at most ' || definition.maximum
            ) || CASE definition.kind WHEN 'duration' THEN ' milliseconds' WHEN 'size' THEN ' bytes' ELSE '' END
    END;
    IF expected IS NOT NULL THEN
        RAISE EXCEPTION 'bad value for %: %', NEW.name, quote_literal(NEW.value) USING
            ERRCODE = 'invalid_parameter_value', HINT = 'Expected ' || expected || '.';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION millstream.check_setting IS 'Refuses unknown settings, bad values, and settings that the database cannot set';

-- A statement trigger, so that one statement can change both settings of a pair.
CREATE FUNCTION millstream.announce_settings() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pair record;
BEGIN
    SELECT l.name AS lower, h.name AS higher INTO pair
    FROM millstream.setting_definitions AS l
    JOIN millstream.setting_definitions AS h ON h.name = l.less_than
    LEFT JOIN millstream.settings AS ls ON ls.name = l.name
    LEFT JOIN millstream.settings AS hs ON hs.name = h.name
    WHERE millstream.setting_amount(l.kind, coalesce(ls.value, l.default_value))
        >= millstream.setting_amount(h.kind, coalesce(hs.value, h.default_value))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% must be less than %', pair.lower, pair.higher USING
            ERRCODE = 'invalid_parameter_value', HINT = 'Set both in one statement, or the other one first.';
    END IF;
    PERFORM pg_notify('millstream_wake', 'settings');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION millstream.announce_settings IS 'Refuses settings that contradict each other, and wakes the service';

CREATE TRIGGER check_setting BEFORE INSERT OR UPDATE ON millstream.settings
    FOR EACH ROW EXECUTE FUNCTION millstream.check_setting();
CREATE TRIGGER announce_settings AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON millstream.settings
    FOR EACH STATEMENT EXECUTE FUNCTION millstream.announce_settings();
REVOKE ALL ON FUNCTION millstream.setting_amount, millstream.check_setting, millstream.announce_settings FROM PUBLIC;

-- Monitoring. The functions for millstream_reader and millstream_operator show the state of everything and no value of
-- a row. Queries, plans and texts of errors may contain values, and are shown only to roles with the rights of the
-- stream table's owner. A view determines the role: in a view, current_user is the role that reads it, also after SET
-- ROLE and in functions of other roles.

-- Do changes wait for this stream table after its frontier: any, or only marks (TRUNCATE, or a gap in capture)? The
-- buffer has an index on transactions, and one on marks.
CREATE FUNCTION millstream.has_changes(stream_table_id bigint, source oid, only_marks boolean) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    frontier pg_snapshot;
    other_origin "char";
    found boolean;
BEGIN
    -- While some reader has not passed a cutover, rows of both origins count.
    SELECT t.frontier, CASE WHEN s.cutovers = '[]' THEN CASE s.cdc_mode WHEN 'WAL' THEN 't' ELSE 'l' END ELSE '' END
    INTO frontier, other_origin
    FROM millstream.stream_tables AS t, millstream.sources AS s
    WHERE t.id = $1 AND s.relid = $2;
    IF frontier IS NULL OR to_regclass(format('millstream_changes.changes_%s', $2)) IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM millstream_changes.changes_%s'
        ' WHERE xid >= $1 AND NOT pg_visible_in_snapshot(xid, $2) AND origin <> $3 AND %s)',
        $2, CASE WHEN $3 THEN 'action IN (''T'', ''X'')' ELSE 'true' END
    ) INTO found USING pg_snapshot_xmin(frontier), frontier, other_origin;
    RETURN found;
END
$$;
COMMENT ON FUNCTION millstream.has_changes IS 'True if changes of a source wait for a stream table; only marks: of TRUNCATE, and of gaps in the capture';

CREATE FUNCTION millstream.needs_reinit(stream_table_id bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.last_refresh_at IS NOT NULL AND (s.frontier IS NULL OR EXISTS (
        SELECT FROM millstream.dependencies AS d
        WHERE d.stream_table_id = s.id AND millstream.has_changes(s.id, d.source_relid, true)
    ))
    FROM millstream.stream_tables AS s
    WHERE s.id = $1
$$;
COMMENT ON FUNCTION millstream.needs_reinit IS 'True if the next refresh of a stream table computes all of its rows anew, as far as the catalog tells';

-- A service that finds no changes writes nothing, so the rows may be newer than data_timestamp. They are as of now if
-- no change waits for this stream table or one that it reads, to any depth. For sources that are captured from WAL,
-- this is known up to the cursor.
CREATE FUNCTION millstream.staleness_of(stream_table_id bigint) RETURNS interval
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE below (id) AS (
        SELECT $1
        UNION
        SELECT u.upstream_id FROM below AS b JOIN millstream.upstreams AS u ON u.stream_table_id = b.id
    ), read AS MATERIALIZED (
        SELECT b.id, d.source_relid, s.cdc_mode
        FROM below AS b
        JOIN millstream.dependencies AS d ON d.stream_table_id = b.id
        JOIN millstream.sources AS s ON s.relid = d.source_relid
    )
    SELECT CASE
        WHEN EXISTS (
                SELECT FROM below AS b
                JOIN millstream.stream_tables AS t ON t.id = b.id
                WHERE t.frontier IS NULL OR t.status = 'ERROR' OR t.reads_clock IS NOT FALSE
            )
            OR EXISTS (SELECT FROM read AS r WHERE millstream.has_changes(r.id, r.source_relid, false))
            THEN clock_timestamp() - s.data_timestamp
        ELSE least(clock_timestamp() - s.data_timestamp, coalesce((
            SELECT max(clock_timestamp() - o.updated_at)
            FROM millstream.slots AS o
            WHERE o.cursor < CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
                AND EXISTS (SELECT FROM read AS r WHERE r.cdc_mode = 'WAL')
        ), interval '0'))
    END
    FROM millstream.stream_tables AS s
    WHERE s.id = $1
$$;
COMMENT ON FUNCTION millstream.staleness_of IS 'The age of the rows of a stream table: zero while no change waits; NULL before it is filled';

CREATE OR REPLACE VIEW millstream.stream_tables_info AS
SELECT
    s.schema_name, s.name, pg_get_userbyid(c.relowner) AS owner, s.status, s.refresh_mode, s.schedule, s.cdc_mode,
    s.frontier IS NOT NULL AS is_populated, s.data_timestamp, f.staleness,
    s.last_refresh_at, s.last_action, s.last_reason, s.consecutive_errors,
    -- The text of an error may quote values of rows.
    substring(s.last_error FROM '\[(MS[0-9]{3})\]') AS last_error_code,
    s.id,
    coalesce(f.staleness > 2 * o.every + interval '1 second', false) AS is_stale,
    -- The stream tables that it reads, to any depth, whose rows are older than its own last refresh.
    CASE
        WHEN s.data_timestamp < s.cut_at THEN ARRAY(
            WITH RECURSIVE below (id) AS (
                SELECT u.upstream_id FROM millstream.upstreams AS u WHERE u.stream_table_id = s.id
                UNION
                SELECT u.upstream_id
                FROM below AS b
                JOIN millstream.stream_tables AS t ON t.id = b.id AND t.cut_at = s.cut_at
                JOIN millstream.upstreams AS u ON u.stream_table_id = b.id
            )
            SELECT format('%I.%I', t.schema_name, t.name)
            FROM below AS b
            JOIN millstream.stream_tables AS t ON t.id = b.id
            WHERE t.cut_at IS DISTINCT FROM s.cut_at
            ORDER BY t.data_timestamp NULLS FIRST, t.id
        )
        ELSE '{}'
    END AS held_back_by,
    s.transient_errors,
    substring(s.last_transient_error FROM '\[(MS[0-9]{3})\]') AS last_transient_error_code,
    CASE WHEN pg_has_role(coalesce(c.relowner, m.nspowner), 'USAGE') THEN coalesce(s.last_error, s.last_transient_error) END AS last_error,
    s.next_try_at, s.no_data_refreshes, s.last_verified_at, s.last_verified_ok,
    coalesce(nullif(c.reltuples::bigint, -1), pg_stat_get_live_tuples(c.oid), 0) AS rows,
    pg_total_relation_size(c.oid) AS size_bytes,
    millstream.needs_reinit(s.id) AS needs_reinit,
    ARRAY(
        SELECT format('%I.%I', t.schema_name, t.name)
        FROM millstream.upstreams AS u
        JOIN millstream.stream_tables AS t ON t.id = u.upstream_id
        WHERE u.stream_table_id = s.id
        ORDER BY t.schema_name, t.name
    ) AS upstreams,
    CASE WHEN pg_has_role(coalesce(c.relowner, m.nspowner), 'USAGE') THEN s.query END AS query
FROM millstream.stream_tables AS s
JOIN pg_namespace AS m ON m.nspname = 'millstream'
LEFT JOIN pg_class AS c ON c.oid = s.relid
LEFT JOIN LATERAL (
    SELECT interval '1 millisecond' * (p.part[1]::float8 * CASE p.part[2]
        WHEN 'ms' THEN 1 WHEN 's' THEN 1000 WHEN 'm' THEN 60000 WHEN 'h' THEN 3600000 ELSE 86400000
    END) AS every
    FROM regexp_match(lower(s.schedule), '^ *([0-9]{1,9}) *(ms|s|m|h|d) *$') AS p (part)
) AS o ON true
-- OFFSET 0: evaluated once per row, and only if the column is used.
CROSS JOIN LATERAL (SELECT millstream.staleness_of(s.id) AS staleness OFFSET 0) AS f;
COMMENT ON VIEW millstream.stream_tables_info IS 'Status of each stream table; readable by members of millstream_reader';
COMMENT ON COLUMN millstream.stream_tables_info.data_timestamp IS 'Everything committed before this time is in its rows: the earliest of its own cut and the data timestamps of the stream tables it read there';
COMMENT ON COLUMN millstream.stream_tables_info.staleness IS 'The age of its rows: zero while no change waits, since they are as of now then';
COMMENT ON COLUMN millstream.stream_tables_info.is_stale IS 'Its rows are older than twice its schedule; false for a schedule that is no duration';
COMMENT ON COLUMN millstream.stream_tables_info.held_back_by IS 'Stream tables that it reads, directly or through others, whose rows are older than its own last refresh';
COMMENT ON COLUMN millstream.stream_tables_info.last_error IS 'Text of the last error; NULL for roles that do not have the rights of its owner';
COMMENT ON COLUMN millstream.stream_tables_info.rows IS 'Estimate of PostgreSQL';
COMMENT ON COLUMN millstream.stream_tables_info.needs_reinit IS 'The next refresh computes all of its rows anew, as far as the catalog tells';
COMMENT ON COLUMN millstream.stream_tables_info.upstreams IS 'The stream tables that it reads';
COMMENT ON COLUMN millstream.stream_tables_info.query IS 'NULL for roles that do not have the rights of its owner';

CREATE VIEW millstream.blocks_info AS
SELECT
    b.stream_table_id, s.schema_name, s.name, b.position, b.name AS block_name, r.relname AS state_table,
    pg_total_relation_size(r.oid) AS state_bytes,
    CASE WHEN pg_has_role(coalesce(c.relowner, m.nspowner), 'USAGE') THEN b.plan END AS plan
FROM millstream.blocks AS b
JOIN millstream.stream_tables AS s ON s.id = b.stream_table_id
JOIN pg_namespace AS m ON m.nspname = 'millstream'
LEFT JOIN pg_class AS c ON c.oid = s.relid
LEFT JOIN pg_class AS r ON r.oid = b.state_relid;
COMMENT ON VIEW millstream.blocks_info IS 'The blocks that each query was split into; readable by members of millstream_reader';
COMMENT ON COLUMN millstream.blocks_info.plan IS 'NULL for roles that do not have the rights of the stream table''s owner';

CREATE VIEW millstream.refresh_history_info AS
SELECT
    h.id, h.stream_table_id, s.schema_name, s.name, h.action, h.reason, h.status, h.initiated_by, h.started_at, h.finished_at,
    round(extract(epoch FROM h.finished_at - h.started_at) * 1000) AS duration_ms, h.data_timestamp,
    h.rows_read, h.rows_inserted, h.rows_updated, h.rows_deleted, h.spark_jobs, h.phases, h.error ->> 'code' AS error_code,
    CASE WHEN pg_has_role(coalesce(c.relowner, m.nspowner), 'USAGE') THEN h.error ->> 'message' END AS error
FROM millstream.refresh_history AS h
JOIN millstream.stream_tables AS s ON s.id = h.stream_table_id
JOIN pg_namespace AS m ON m.nspname = 'millstream'
LEFT JOIN pg_class AS c ON c.oid = s.relid;
COMMENT ON VIEW millstream.refresh_history_info IS 'What each refresh did, why, and what it cost; readable by members of millstream_reader';
COMMENT ON COLUMN millstream.refresh_history_info.error IS 'Text of the error; NULL for roles that do not have the rights of the stream table''s owner';

-- The default of `path` is evaluated by the caller, with the caller's search_path.
CREATE FUNCTION millstream.stream_table_id(name text, path name[] DEFAULT current_schemas(true)) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parts text[] := parse_ident($1);
    found bigint;
BEGIN
    SELECT s.id INTO found
    FROM millstream.stream_tables AS s
    LEFT JOIN unnest($2) WITH ORDINALITY AS p (schema_name, place) ON p.schema_name = s.schema_name
    WHERE s.name = parts[cardinality(parts)]
        AND CASE cardinality(parts) WHEN 1 THEN p.place IS NOT NULL WHEN 2 THEN s.schema_name = parts[1] ELSE false END
    ORDER BY p.place
    LIMIT 1;
    IF found IS NULL THEN
        RAISE EXCEPTION 'no stream table is named %', $1 USING
            ERRCODE = 'undefined_table', HINT = 'SELECT stream_table FROM millstream.status() lists them.';
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION millstream.stream_table_id IS 'The id of a stream table by its name, which is read as PostgreSQL reads names; a bare one is looked for in the schemas of path';

CREATE FUNCTION millstream.status() RETURNS TABLE (
    stream_table text, status text, schedule text, refresh_mode text, data_timestamp timestamptz, staleness interval,
    is_stale boolean, held_back_by text[], last_refresh_at timestamptz, last_action text, last_reason text, rows bigint,
    consecutive_errors integer, transient_errors integer, error_code text, error text, next_try_at timestamptz,
    last_verified_at timestamptz, last_verified_ok boolean
) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        format('%I.%I', i.schema_name, i.name), i.status, i.schedule, i.refresh_mode, i.data_timestamp, i.staleness,
        i.is_stale, i.held_back_by, i.last_refresh_at, i.last_action, i.last_reason, i.rows,
        i.consecutive_errors, i.transient_errors, coalesce(i.last_error_code, i.last_transient_error_code), i.last_error,
        i.next_try_at, i.last_verified_at, i.last_verified_ok
    FROM millstream.stream_tables_info AS i
    ORDER BY i.schema_name, i.name
$$;
COMMENT ON FUNCTION millstream.status IS 'Each stream table in one row: how fresh it is, what its last refresh did, and what is wrong';

CREATE FUNCTION millstream.get_staleness(name text, path name[] DEFAULT current_schemas(true)) RETURNS interval
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT millstream.staleness_of(millstream.stream_table_id($1, $2))
$$;
COMMENT ON FUNCTION millstream.get_staleness IS 'The age of the rows of a stream table: zero while no change waits; NULL before it is filled';

CREATE FUNCTION millstream.get_refresh_history(name text, n integer DEFAULT 20, path name[] DEFAULT current_schemas(true))
RETURNS TABLE (
    id bigint, action text, reason text, status text, initiated_by text, started_at timestamptz, finished_at timestamptz,
    duration_ms numeric, data_timestamp timestamptz, rows_read bigint, rows_inserted bigint, rows_updated bigint,
    rows_deleted bigint, spark_jobs integer, phases jsonb, error_code text, error text
) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        h.id, h.action, h.reason, h.status, h.initiated_by, h.started_at, h.finished_at, h.duration_ms, h.data_timestamp,
        h.rows_read, h.rows_inserted, h.rows_updated, h.rows_deleted, h.spark_jobs, h.phases, h.error_code, h.error
    FROM millstream.refresh_history_info AS h
    WHERE h.stream_table_id = (SELECT millstream.stream_table_id($1, $3))
    ORDER BY h.id DESC
    LIMIT $2
$$;
COMMENT ON FUNCTION millstream.get_refresh_history IS 'The last n refreshes of a stream table, the newest first';

CREATE FUNCTION millstream.st_refresh_stats(period interval DEFAULT '1 day') RETURNS TABLE (
    stream_table text, refreshes bigint, failed bigint, skipped bigint, no_data bigint, differential bigint, "full" bigint,
    reinitialize bigint, rows_read bigint, rows_inserted bigint, rows_updated bigint, rows_deleted bigint,
    mean_ms numeric, p95_ms numeric, max_ms numeric, last_started_at timestamptz
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        format('%I.%I', s.schema_name, s.name), count(h.id) FILTER (WHERE h.status = 'COMPLETED'),
        count(h.id) FILTER (WHERE h.status = 'FAILED'), count(h.id) FILTER (WHERE h.status = 'SKIPPED'),
        count(h.id) FILTER (WHERE h.is_done AND h.action = 'NO_DATA'),
        count(h.id) FILTER (WHERE h.is_done AND h.action = 'DIFFERENTIAL'),
        count(h.id) FILTER (WHERE h.is_done AND h.action = 'FULL'),
        count(h.id) FILTER (WHERE h.is_done AND h.action = 'REINITIALIZE'),
        coalesce(sum(h.rows_read), 0)::bigint, coalesce(sum(h.rows_inserted), 0)::bigint,
        coalesce(sum(h.rows_updated), 0)::bigint, coalesce(sum(h.rows_deleted), 0)::bigint,
        round(avg(h.ms) FILTER (WHERE h.is_done)),
        round((percentile_cont(0.95) WITHIN GROUP (ORDER BY h.ms) FILTER (WHERE h.is_done))::numeric),
        round(max(h.ms) FILTER (WHERE h.is_done)), max(h.started_at)
    FROM millstream.stream_tables AS s
    LEFT JOIN (
        SELECT r.*, r.status = 'COMPLETED' AS is_done, extract(epoch FROM r.finished_at - r.started_at) * 1000 AS ms
        FROM millstream.refresh_history AS r
    ) AS h ON h.stream_table_id = s.id AND h.started_at > clock_timestamp() - $1
    GROUP BY s.id
    ORDER BY s.schema_name, s.name
$$;
COMMENT ON FUNCTION millstream.st_refresh_stats IS 'The refreshes of each stream table in the last period, counted and timed';

REVOKE ALL ON FUNCTION
    millstream.stream_table_id, millstream.status, millstream.get_staleness, millstream.get_refresh_history,
    millstream.st_refresh_stats
FROM PUBLIC;

-- WAL capture. The reader writes these columns in the transaction that moves the cursor, and after an interruption, but
-- never while idle.
ALTER TABLE millstream.slots
    ADD COLUMN received pg_lsn,
    ADD COLUMN markers bigint NOT NULL DEFAULT 0,
    ADD COLUMN heartbeat_at timestamptz,
    ADD COLUMN reconnects bigint NOT NULL DEFAULT 0,
    ADD COLUMN interrupted_at timestamptz,
    ADD COLUMN interrupted_by text;
COMMENT ON COLUMN millstream.slots.cursor IS 'Every change before this position is durable in the buffers';
COMMENT ON COLUMN millstream.slots.received IS 'The position up to which WAL had been received when the cursor last moved';
COMMENT ON COLUMN millstream.slots.markers IS 'Positions that were stored without any change';
COMMENT ON COLUMN millstream.slots.heartbeat_at IS 'When the last heartbeat that has come back was sent';
COMMENT ON COLUMN millstream.slots.reconnects IS 'Interruptions of the reader; recorded when it has connected again';
COMMENT ON COLUMN millstream.slots.interrupted_by IS 'Why it was interrupted the last time';

-- A setting of the database, in bytes, milliseconds or as a number. The environment and the settings file of a process
-- may override it.
CREATE FUNCTION millstream.setting_number(name text) RETURNS numeric
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(millstream.setting_amount(d.kind, s.value), millstream.setting_amount(d.kind, d.default_value))
    FROM millstream.setting_definitions AS d
    LEFT JOIN millstream.settings AS s ON s.name = d.name
    WHERE d.name = $1
$$;
COMMENT ON FUNCTION millstream.setting_number IS 'A setting as a number: what the database stores, otherwise the default';

DROP FUNCTION millstream.slot_health();
CREATE FUNCTION millstream.slot_health() RETURNS TABLE (
    slot_name text, active boolean, wal_status text, invalidation_reason text, confirmed_lsn pg_lsn,
    confirmed_lag_bytes bigint, confirmed_lag_seconds numeric, restart_lag_bytes bigint, safe_wal_size bigint,
    spilled_bytes bigint, held_by text, received_lsn pg_lsn, durable_lsn pg_lsn, markers bigint, heartbeat_at timestamptz,
    reconnects bigint, interrupted_at timestamptz, interrupted_by text, decoder_status text, trouble text
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        s.name, coalesce(r.active, false), r.wal_status, to_jsonb(r) ->> 'invalidation_reason', r.confirmed_flush_lsn,
        (e.lsn - r.confirmed_flush_lsn)::bigint,
        CASE
            WHEN r.confirmed_flush_lsn >= e.lsn THEN 0
            ELSE round(extract(epoch FROM greatest(clock_timestamp() - s.updated_at, interval '0')), 3)
        END,
        (e.lsn - r.restart_lsn)::bigint, r.safe_wal_size, st.spill_bytes,
        -- Two lags, since they have two causes: WAL that is not yet confirmed waits for Millstream; WAL that is confirmed and
        -- still retained waits for the oldest transaction.
        CASE WHEN e.lsn - r.restart_lsn > e.lsn - r.confirmed_flush_lsn + 16777216 THEN o.holder END,
        s.received, s.cursor, s.markers, s.heartbeat_at, s.reconnects, s.interrupted_at, s.interrupted_by,
        CASE WHEN l.is_lost THEN 'LOST' WHEN r.active THEN 'STREAMING' ELSE 'STOPPED' END,
        CASE
            WHEN r.slot_name IS NULL THEN 'The slot does not exist.'
            WHEN l.is_lost THEN 'The server has invalidated the slot.'
            WHEN NOT r.active THEN 'Nobody reads from the slot; the server retains WAL for it.'
        END
    FROM millstream.slots AS s
    LEFT JOIN pg_replication_slots AS r ON r.slot_name = s.name
    LEFT JOIN pg_stat_replication_slots AS st ON st.slot_name = s.name
    CROSS JOIN LATERAL (
        SELECT r.slot_name IS NULL OR r.wal_status = 'lost' OR to_jsonb(r) ->> 'invalidation_reason' IS NOT NULL AS is_lost
    ) AS l
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
COMMENT ON FUNCTION millstream.slot_health IS 'State of the replication slot of this database and of its reader, and which transaction retains WAL if not Millstream';

DROP FUNCTION millstream.check_cdc_health();
CREATE FUNCTION millstream.check_cdc_health() RETURNS TABLE (
    source regclass, cdc_mode text, since timestamptz, slot_name text, confirmed_lsn pg_lsn, slot_lag_bytes bigint,
    slot_lag_seconds numeric, slot_lag_warning bigint, slot_lag_critical bigint, decoder_status text,
    pending_cutovers integer, reason text, alert text
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        s.relid::regclass, s.cdc_mode, s.mode_changed_at, h.slot_name, h.confirmed_lsn, h.confirmed_lag_bytes,
        h.confirmed_lag_seconds, l.warning, l.critical, h.decoder_status, jsonb_array_length(s.cutovers), s.reason,
        CASE
            WHEN c.oid IS NULL THEN 'The table was dropped.'
            WHEN s.cdc_mode = 'TRIGGER' THEN NULL
            WHEN h.slot_name IS NULL THEN 'There is no slot.'
            WHEN h.trouble IS NOT NULL THEN h.trouble
            WHEN h.confirmed_lag_bytes > l.critical THEN format(
                'The slot lags %s behind, more than slot_lag_critical (%s).',
                pg_size_pretty(h.confirmed_lag_bytes), pg_size_pretty(l.critical)
            )
        END
    FROM millstream.sources AS s
    CROSS JOIN (
        SELECT millstream.setting_number('slot_lag_warning')::bigint, millstream.setting_number('slot_lag_critical')::bigint
    ) AS l (warning, critical)
    LEFT JOIN pg_class AS c ON c.oid = s.relid
    LEFT JOIN millstream.slot_health() AS h ON s.cdc_mode <> 'TRIGGER' OR s.cutovers <> '[]'
    ORDER BY s.relid
$$;
COMMENT ON FUNCTION millstream.check_cdc_health IS 'How each source is captured, how far the slot lags behind, and what is wrong with its capture';

CREATE VIEW millstream.pg_stat_stream_tables AS
SELECT
    s.relid, s.schema_name, s.name, d.source_relid, format('%I.%I', o.schema_name, o.name) AS source, d.columns, h.cdc_mode, h.since, h.slot_name,
    h.slot_lag_bytes, h.slot_lag_seconds, h.decoder_status, h.pending_cutovers, h.reason, h.alert
FROM millstream.stream_tables AS s
JOIN millstream.dependencies AS d ON d.stream_table_id = s.id
JOIN millstream.sources AS o ON o.relid = d.source_relid
JOIN millstream.check_cdc_health() AS h ON h.source = d.source_relid;
COMMENT ON VIEW millstream.pg_stat_stream_tables IS 'How each source of each stream table is captured; readable by members of millstream_reader';
COMMENT ON COLUMN millstream.pg_stat_stream_tables.columns IS 'The columns of the source that the stream table reads';
COMMENT ON COLUMN millstream.pg_stat_stream_tables.decoder_status IS 'STREAMING, STOPPED or LOST; NULL where triggers capture the source';

REVOKE ALL ON FUNCTION millstream.setting_number, millstream.slot_health, millstream.check_cdc_health FROM PUBLIC;

CREATE FUNCTION millstream.explain_st(name text, path name[] DEFAULT current_schemas(true))
RETURNS TABLE (part text, name text, detail text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH found AS MATERIALIZED (
        SELECT i.*, format('%I.%I', i.schema_name, i.name) AS qualified
        FROM millstream.stream_tables_info AS i
        WHERE i.id = (SELECT millstream.stream_table_id($1, $2))
    ), parts (place, number, part, name, detail) AS (
        SELECT 1, 0, 'stream table', f.qualified, concat_ws(
            ', ', f.status, f.refresh_mode, 'schedule ' || f.schedule, 'owner ' || f.owner, 'cdc_mode ' || f.cdc_mode,
            CASE WHEN f.needs_reinit THEN 'the next refresh computes all rows anew' END
        )
        FROM found AS f
        UNION ALL
        SELECT 2, 0, 'query', NULL, coalesce(f.query, 'Shown to roles with the rights of the owner.') FROM found AS f
        UNION ALL
        SELECT 3, b.position, 'block', b.block_name, concat_ws(
            E'\n', coalesce(b.plan, 'Shown to roles with the rights of the owner.'),
            'state: millstream_state.' || quote_ident(b.state_table) || ', ' || pg_size_pretty(b.state_bytes)
        )
        FROM found AS f
        JOIN millstream.blocks_info AS b ON b.stream_table_id = f.id
        UNION ALL
        SELECT 4, 0, 'source', p.source, concat_ws(
            ', ', p.cdc_mode, 'columns ' || array_to_string(p.columns, ' '),
            pg_size_pretty(p.slot_lag_bytes) || ' behind', p.reason, p.alert
        )
        FROM found AS f
        JOIN millstream.pg_stat_stream_tables AS p ON (p.schema_name, p.name) = (f.schema_name, f.name)
        UNION ALL
        SELECT 5, 0, 'upstream', format('%I.%I', u.schema_name, u.name), concat_ws(
            ', ', u.status, 'schedule ' || u.schedule, 'data of ' || u.data_timestamp
        )
        FROM found AS f
        JOIN millstream.stream_tables_info AS u ON format('%I.%I', u.schema_name, u.name) = ANY (f.upstreams)
        UNION ALL
        SELECT 6, 0, 'last refresh', h.action, format(
            '%s, %s: %s rows read, %s inserted, %s updated, %s deleted, %s Spark jobs, %s ms', h.reason, h.started_at,
            h.rows_read, h.rows_inserted, h.rows_updated, h.rows_deleted, h.spark_jobs, h.duration_ms
        )
        FROM found AS f
        CROSS JOIN LATERAL (
            SELECT r.* FROM millstream.refresh_history_info AS r
            WHERE r.stream_table_id = f.id AND r.status = 'COMPLETED'
            ORDER BY r.id DESC
            LIMIT 1
        ) AS h
    )
    SELECT p.part, p.name, p.detail FROM parts AS p ORDER BY p.place, p.number, p.name
$$;
COMMENT ON FUNCTION millstream.explain_st IS 'How a stream table is maintained: its blocks, sources, upstreams and last refresh';
REVOKE ALL ON FUNCTION millstream.has_changes, millstream.needs_reinit, millstream.staleness_of, millstream.explain_st FROM PUBLIC;

-- A buffer retains the changes that some reader has not consumed. A reader that is not refreshed by schedule holds them
-- back until its next refresh.
CREATE FUNCTION millstream.held_back_buffers()
RETURNS TABLE (source text, buffer text, size_bytes bigint, rows bigint, held_back_by text[], since timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        format('%I.%I', s.schema_name, s.name), format('millstream_changes.%I', b.relname), pg_total_relation_size(b.oid),
        greatest(pg_stat_get_live_tuples(b.oid), b.reltuples::bigint, 0), r.names, r.since
    FROM millstream.sources AS s
    JOIN pg_class AS b ON b.oid = to_regclass(format('millstream_changes.changes_%s', s.relid))
    CROSS JOIN LATERAL (
        SELECT
            array_agg(format('%I.%I', t.schema_name, t.name) ORDER BY t.schema_name, t.name),
            min(coalesce(t.cut_at, t.created_at))
        FROM millstream.dependencies AS d
        JOIN millstream.stream_tables AS t ON t.id = d.stream_table_id
        WHERE d.source_relid = s.relid
            AND (
                t.status IN ('SUSPENDED', 'ERROR') OR lower(t.schedule) = 'manual'
                OR lower(t.schedule) = 'calculated'
                AND NOT EXISTS (SELECT FROM millstream.upstreams AS u WHERE u.upstream_id = t.id)
            )
            AND CASE
                WHEN t.frontier IS NULL THEN pg_relation_size(b.oid) > 0 ELSE millstream.has_changes(t.id, s.relid, false)
            END
    ) AS r (names, since)
    WHERE r.names IS NOT NULL
    ORDER BY 3 DESC, 1
$$;
COMMENT ON FUNCTION millstream.held_back_buffers IS 'Change buffers that are not pruned, since a stream table that is not refreshed by itself has yet to read them';

CREATE FUNCTION millstream.service_status() RETURNS TABLE (
    role text, host text, pid integer, version text, started_at timestamptz, last_tick_at timestamptz, alive boolean,
    silent interval, epoch bigint, leads_since timestamptz
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        s.role, s.host, s.pid, s.version, s.started_at, s.last_tick_at, a.pid IS NOT NULL,
        greatest(clock_timestamp() - a.state_change, interval '0'), l.epoch, l.since
    FROM millstream.services AS s
    LEFT JOIN pg_stat_activity AS a ON a.pid = s.backend_pid AND a.backend_start = s.backend_start
    LEFT JOIN millstream.leadership AS l ON l.instance = s.instance
    ORDER BY s.role, s.started_at
$$;
COMMENT ON FUNCTION millstream.service_status IS 'The processes of the command run, the leader first; alive: its session exists; silent: since that session last did anything';

-- No text of an error and no query, since every caller sees all rows.
CREATE FUNCTION millstream.health_check() RETURNS TABLE (check_name text, status text, detail text, hint text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH settings AS MATERIALIZED (
        SELECT
            millstream.setting_number('slot_lag_warning')::bigint AS warning,
            millstream.setting_number('slot_lag_critical')::bigint AS critical,
            millstream.setting_number('heartbeat_timeout') * interval '1 millisecond' AS heartbeat_timeout
    ), services AS MATERIALIZED (
        SELECT s.* FROM millstream.service_status() AS s WHERE s.alive
    ), service AS (
        SELECT 'service', v.* FROM (
            SELECT count(*) FILTER (WHERE s.role = 'LEADER'), count(*) FILTER (WHERE s.role = 'STANDBY'),
                max(s.silent) FILTER (WHERE s.role = 'LEADER'),
                max(format('process %s on %s, version %s, leads since %s', s.pid, s.host, s.version, s.leads_since))
                    FILTER (WHERE s.role = 'LEADER')
            FROM services AS s
        ) AS c (leaders, standbys, silent, leader)
        CROSS JOIN LATERAL (
            SELECT CASE WHEN EXISTS (SELECT FROM millstream.stream_tables AS t WHERE lower(t.schedule) <> 'manual') THEN 'WARN' ELSE 'OK' END,
                'No service runs: nothing is refreshed by schedule, no request is executed.',
                'Start one: millstream run.'
            WHERE c.leaders = 0
            UNION ALL
            SELECT 'WARN', format('%s; it has done nothing for %s', c.leader, c.silent), 'See its log.'
            WHERE c.leaders > 0 AND c.silent > interval '15 s'
            UNION ALL
            SELECT 'OK', format('%s; %s standby', c.leader, c.standbys), NULL
            WHERE c.leaders > 0 AND (c.silent <= interval '15 s' OR c.silent IS NULL)
        ) AS v (status, detail, hint)
    ), tables AS MATERIALIZED (
        SELECT format('%I.%I', i.schema_name, i.name) AS qualified, v.status, v.detail, v.hint
        FROM millstream.stream_tables_info AS i
        CROSS JOIN LATERAL (
            SELECT
                format('SELECT * FROM millstream.get_refresh_history(%L)', format('%I.%I', i.schema_name, i.name)),
                format('SELECT millstream.alter_stream_table(%L, status => ''ACTIVE'')', format('%I.%I', i.schema_name, i.name)),
                coalesce(i.last_error_code, i.last_transient_error_code, 'no code')
        ) AS h (history, resume, code)
        LEFT JOIN LATERAL (
            SELECT * FROM (VALUES
                (i.status = 'ERROR', 'ERROR', format('ERROR: %s', h.code), h.history),
                (
                    i.status = 'SUSPENDED' AND i.consecutive_errors > 0, 'ERROR',
                    format('suspended after %s errors, the last one %s', i.consecutive_errors, h.code),
                    format('Remove the cause (%s), then: %s', h.history, h.resume)
                ),
                (
                    i.last_verified_ok IS FALSE, 'ERROR',
                    format('it differed from its query when it was verified at %s', i.last_verified_at), 'See the log of the service.'
                ),
                (i.status = 'SUSPENDED', 'WARN', 'suspended by request', format('Resume it: %s', h.resume)),
                (i.consecutive_errors > 0, 'WARN', format('%s refreshes in a row failed, the last one with %s', i.consecutive_errors, h.code), h.history),
                (i.transient_errors > 0, 'WARN', format('%s refreshes in a row failed for a reason that passes, %s', i.transient_errors, h.code), h.history),
                (
                    NOT i.is_populated, 'WARN', 'not filled yet',
                    format('SELECT millstream.refresh_stream_table(%L)', format('%I.%I', i.schema_name, i.name))
                ),
                (
                    i.held_back_by <> '{}' AND i.is_stale, 'WARN',
                    format('its rows are %s old, as are those that it reads: %s', i.staleness, array_to_string(i.held_back_by, ', ')),
                    'Refresh or resume those.'
                ),
                (
                    i.is_stale, 'WARN', format('its rows are %s old, its schedule is %s', i.staleness, i.schedule),
                    'Does a service run, and does it keep up? See: SELECT * FROM millstream.st_refresh_stats()'
                )
            ) AS r (holds, status, detail, hint)
            WHERE r.holds
            LIMIT 1
        ) AS v ON true
    ), buffers AS MATERIALIZED (
        SELECT h.* FROM millstream.held_back_buffers() AS h
    ), checks (place, check_name, status, detail, hint) AS (
        SELECT 1, s.* FROM service AS s
        UNION ALL
        SELECT 2, 'stream tables', 'OK', format('%s of %s without anything to report', count(*) FILTER (WHERE t.status IS NULL), count(*)), NULL
        FROM tables AS t
        UNION ALL
        SELECT 3, 'stream table ' || t.qualified, t.status, t.detail, t.hint FROM tables AS t WHERE t.status IS NOT NULL
        UNION ALL
        SELECT 4, 'sources', 'OK', format(
            '%s captured by triggers, %s from WAL, %s in transition', count(*) FILTER (WHERE o.cdc_mode = 'TRIGGER'),
            count(*) FILTER (WHERE o.cdc_mode = 'WAL'), count(*) FILTER (WHERE o.cdc_mode = 'TRANSITIONING')
        ), NULL
        FROM millstream.sources AS o
        UNION ALL
        SELECT 5, format('source %I.%I', o.schema_name, o.name), 'ERROR', c.alert, coalesce(c.reason, 'See: millstream health.')
        FROM millstream.check_cdc_health() AS c
        JOIN millstream.sources AS o ON o.relid = c.source
        WHERE c.alert IS NOT NULL
        UNION ALL
        SELECT 6, 'slot ' || h.slot_name, v.status, concat_ws('; ', v.detail, 'retained for ' || h.held_by), v.hint
        FROM millstream.slot_health() AS h
        CROSS JOIN settings AS s
        CROSS JOIN LATERAL (
            SELECT * FROM (VALUES
                (
                    h.decoder_status = 'LOST', 'ERROR', h.trouble,
                    'The service captures its sources by triggers again, by itself.'
                ),
                (
                    h.confirmed_lag_bytes > s.critical, 'ERROR',
                    format('%s behind, more than slot_lag_critical', pg_size_pretty(h.confirmed_lag_bytes)),
                    'The service captures its sources by triggers again, by itself.'
                ),
                (h.trouble IS NOT NULL, 'WARN', h.trouble, 'Start a service: millstream run.'),
                (
                    h.confirmed_lag_bytes > s.warning, 'WARN',
                    format('%s behind, more than slot_lag_warning', pg_size_pretty(h.confirmed_lag_bytes)),
                    'Wait, or see what keeps the service busy.'
                ),
                (
                    h.heartbeat_at < clock_timestamp() - s.heartbeat_timeout AND h.confirmed_lag_bytes > 0, 'WARN',
                    format('the last heartbeat that came back was sent at %s', h.heartbeat_at), 'See the log of the service.'
                ),
                (
                    h.interrupted_at > clock_timestamp() - interval '10 min', 'WARN',
                    format('interrupted at %s: %s', h.interrupted_at, h.interrupted_by), 'The service has connected again; see its log.'
                ),
                (true, 'OK', format('%s behind', pg_size_pretty(h.confirmed_lag_bytes)), NULL)
            ) AS r (holds, status, detail, hint)
            WHERE r.holds
            LIMIT 1
        ) AS v
        UNION ALL
        SELECT 7, 'change buffer of ' || b.source,
            CASE WHEN b.size_bytes > s.critical THEN 'ERROR' WHEN b.size_bytes > s.warning THEN 'WARN' ELSE 'OK' END,
            format('%s, some %s rows, wait for %s since %s', pg_size_pretty(b.size_bytes), b.rows, array_to_string(b.held_back_by, ', '), b.since),
            'Refresh, resume or drop what they wait for.'
        FROM buffers AS b
        CROSS JOIN settings AS s
        UNION ALL
        SELECT 8, 'requests', CASE WHEN w.longest > interval '1 min' THEN 'WARN' ELSE 'OK' END,
            format('%s waiting, the first one for %s', w.waiting, w.longest), 'Start a service: millstream run.'
        FROM (
            SELECT count(*), clock_timestamp() - min(r.requested_at) FROM millstream.requests AS r WHERE r.status = 'WAITING'
        ) AS w (waiting, longest)
        WHERE w.waiting > 0
    )
    SELECT c.check_name, c.status, c.detail, c.hint FROM checks AS c ORDER BY c.place, c.check_name
$$;
COMMENT ON FUNCTION millstream.health_check IS 'Checks of the service, stream tables, sources, slot, change buffers and requests: OK, WARN or ERROR, and what to do';
REVOKE ALL ON FUNCTION millstream.held_back_buffers, millstream.service_status, millstream.health_check FROM PUBLIC;
