-- The session settings on which the result of a query depends are recorded with the stream table.
ALTER TABLE millstream.stream_tables ADD COLUMN settings jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN millstream.stream_tables.settings IS 'The session settings that the result of its query depends on, as they are set wherever it is evaluated; those that are missing are as in all sessions of Millstream';

CREATE OR REPLACE FUNCTION millstream.request(kind text, name text, arguments jsonb) RETURNS bigint
LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO millstream.own_requests (kind, stream_table, arguments, search_path)
    VALUES (
        request.kind, request.name,
        jsonb_strip_nulls(request.arguments) || CASE
            WHEN request.kind IN ('create', 'create_or_replace', 'alter', 'validate', 'explain_query') THEN jsonb_build_object(
                'session', (
                    SELECT jsonb_object_agg(s.setting_name, current_setting(s.setting_name, true))
                    FROM unnest(ARRAY[
                        'TimeZone', 'timezone_abbreviations', 'DateStyle', 'IntervalStyle', 'extra_float_digits', 'bytea_output',
                        'lc_monetary', 'lc_numeric', 'lc_time', 'default_text_search_config', 'xmloption', 'xmlbinary',
                        'array_nulls'
                    ]) AS s (setting_name)
                )
            )
            ELSE '{}'
        END,
        coalesce((
            SELECT string_agg(quote_ident(p.schema_name), ', ' ORDER BY p.position)
            FROM unnest(current_schemas(false)) WITH ORDINALITY AS p (schema_name, position)
            WHERE left(p.schema_name::text, 7) <> 'pg_temp'
        ), '')
    )
    RETURNING id;
END;

-- Whoever changes what the rows are must own the stream table.
CREATE OR REPLACE FUNCTION millstream.may_ask(asking name, kind text, arguments jsonb, relid oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(pg_has_role(a.oid, n.nspowner, 'USAGE'), false)
        OR coalesce(pg_has_role(a.oid, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = $4), 'USAGE'), false)
        OR $2 <> 'drop' AND NOT ($2 = 'alter' AND $3 ?| '{query,settings,assume_immutable}') AND EXISTS (
            -- An operator's role that somebody else has created is granted nothing, and counts for nothing.
            SELECT FROM pg_roles AS o
            WHERE o.rolname = 'millstream_operator' AND pg_has_role(a.oid, o.oid, 'USAGE')
                AND has_column_privilege(o.oid, 'millstream.own_requests', 'kind', 'INSERT')
        )
    FROM pg_roles AS a, pg_namespace AS n
    WHERE a.rolname = $1 AND n.nspname = 'millstream'
$$;

DROP FUNCTION millstream.alter_stream_table(text, text, text, text, text, text);
CREATE FUNCTION millstream.alter_stream_table(
    name text, schedule text DEFAULT NULL, refresh_mode text DEFAULT NULL, status text DEFAULT NULL, query text DEFAULT NULL,
    cdc_mode text DEFAULT NULL, settings jsonb DEFAULT NULL
) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT millstream.request('alter', name, jsonb_build_object(
        'schedule', schedule, 'refresh_mode', refresh_mode, 'status', status, 'query', query, 'cdc_mode', cdc_mode,
        'settings', settings
    ));
END;
COMMENT ON FUNCTION millstream.alter_stream_table IS 'Ask to change what is given; status ACTIVE resumes a stream table, SUSPENDED stops it';
REVOKE ALL ON FUNCTION millstream.alter_stream_table FROM PUBLIC;

CREATE OR REPLACE VIEW millstream.stream_tables_info AS
SELECT
    s.schema_name, s.name, pg_get_userbyid(c.relowner) AS owner, s.status, s.refresh_mode, s.schedule, s.cdc_mode,
    s.frontier IS NOT NULL AS is_populated, s.data_timestamp, f.staleness,
    s.last_refresh_at, s.last_action, s.last_reason, s.consecutive_errors,
    -- The text of an error may quote values of rows.
    substring(s.last_error FROM '\[(MS[0-9]{3})\]') AS last_error_code,
    s.id,
    coalesce(f.staleness > 2 * coalesce(o.every, a.promised_age) + interval '1 second', false) AS is_stale,
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
    CASE WHEN pg_has_role(coalesce(c.relowner, m.nspowner), 'USAGE') THEN s.query END AS query,
    s.settings
FROM millstream.stream_tables AS s
JOIN pg_namespace AS m ON m.nspname = 'millstream'
LEFT JOIN pg_class AS c ON c.oid = s.relid
LEFT JOIN LATERAL (
    SELECT interval '1 millisecond' * (p.part[1]::float8 * CASE p.part[2]
        WHEN 'ms' THEN 1 WHEN 's' THEN 1000 WHEN 'm' THEN 60000 WHEN 'h' THEN 3600000 ELSE 86400000
    END) AS every
    FROM regexp_match(lower(s.schedule), '^ *([0-9]{1,9}) *(ms|s|m|h|d) *$') AS p (part)
) AS o ON true
-- After a change of the schedule the recorded age may be that of the former one: use it only for schedules with a target.
LEFT JOIN LATERAL (SELECT s.promised_age WHERE lower(s.schedule) NOT IN ('manual', 'continuous', 'calculated')) AS a ON true
-- OFFSET 0: evaluated once per row, and only if the column is used.
CROSS JOIN LATERAL (SELECT millstream.staleness_of(s.id) AS staleness OFFSET 0) AS f;
COMMENT ON COLUMN millstream.stream_tables_info.settings IS 'The session settings that its query is evaluated with, as far as its result depends on them';
