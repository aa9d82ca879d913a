-- Only the service can evaluate a cron expression. The greatest age that it allows is recorded, so that SQL can find
-- stale stream tables.

ALTER TABLE millstream.stream_tables ADD COLUMN promised_age interval;
COMMENT ON COLUMN millstream.stream_tables.promised_age IS 'How old its rows may become by a cron schedule: the time between two firings, as the service has last worked it out';

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
-- After a change of the schedule the recorded age may be that of the former one: use it only for schedules with a target.
LEFT JOIN LATERAL (SELECT s.promised_age WHERE lower(s.schedule) NOT IN ('manual', 'continuous', 'calculated')) AS a ON true
-- OFFSET 0: evaluated once per row, and only if the column is used.
CROSS JOIN LATERAL (SELECT millstream.staleness_of(s.id) AS staleness OFFSET 0) AS f;
COMMENT ON COLUMN millstream.stream_tables_info.is_stale IS 'Its rows are older than twice its schedule, for a cron expression twice the time between two firings; false for a schedule that promises nothing';
