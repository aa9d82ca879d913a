-- add --
INSERT INTO millstream.stream_tables (
    schema_name, name, relid, query, canonical_query, schedule, refresh_mode, status, cdc_mode, row_key,
    planned_by, reads_clock, settings, assume_immutable
)
VALUES (
    %(schema_name)s, %(name)s, %(relid)s, %(query)s, %(canonical_query)s,
    %(schedule)s, %(refresh_mode)s, %(status)s, %(cdc_mode)s, %(row_key)s,
    %(planned_by)s, %(reads_clock)s, %(settings)s, %(assume_immutable)s
)
RETURNING id;

-- get --
SELECT * FROM millstream.stream_tables WHERE id = %s;

-- get_all --
SELECT * FROM millstream.stream_tables WHERE id = ANY (%s);

-- every --
SELECT * FROM millstream.stream_tables ORDER BY schema_name, name;

-- named --
-- The parts of a name as PostgreSQL reads them; a name without a schema is found along the user's search_path.
SELECT s.*
FROM millstream.stream_tables AS s
LEFT JOIN pg_catalog.unnest(pg_catalog.current_schemas(true)) WITH ORDINALITY AS p (schema_name, ordinality)
    ON p.schema_name OPERATOR(pg_catalog.=) s.schema_name
WHERE s.name OPERATOR(pg_catalog.=) %(name)s
    AND (s.schema_name OPERATOR(pg_catalog.=) %(schema_name)s OR (%(schema_name)s::text IS NULL AND p.ordinality IS NOT NULL))
ORDER BY p.ordinality
LIMIT 1;

-- staleness --
SELECT id, staleness FROM millstream.stream_tables_info WHERE staleness IS NOT NULL;

-- dependants --
-- The stream tables that read this one.
SELECT s.*
FROM millstream.stream_tables AS t
JOIN millstream.dependencies AS d ON d.source_relid = t.relid
JOIN millstream.stream_tables AS s ON s.id = d.stream_table_id
WHERE t.id = %s
ORDER BY s.schema_name, s.name;

-- attach --
UPDATE millstream.stream_tables SET relid = %s, updated_at = clock_timestamp() WHERE id = %s;

-- advance --
-- A stream table that reaches a frontier equals its query: its status becomes ACTIVE, and former errors are cleared.
-- Its data timestamp is that of the oldest stream table from which it was computed.
UPDATE millstream.stream_tables AS s
SET frontier = %(frontier)s::pg_snapshot,
    content_frontier = CASE
        WHEN EXISTS (SELECT FROM millstream.upstreams AS u WHERE u.stream_table_id = s.id) THEN millstream.common_snapshot(
            %(frontier)s::pg_snapshot || ARRAY(
                -- If it has no frontier, the time is unknown: the catalog may have come from another database.
                SELECT CASE WHEN t.frontier IS NOT NULL THEN t.content_frontier END
                FROM millstream.upstreams AS u
                JOIN millstream.stream_tables AS t ON t.id = u.upstream_id
                WHERE u.stream_table_id = s.id
            )
        )
        ELSE %(frontier)s::pg_snapshot
    END,
    cut_at = %(cut_at)s,
    data_timestamp = least(%(cut_at)s, (
        SELECT min(t.data_timestamp)
        FROM millstream.upstreams AS u
        JOIN millstream.stream_tables AS t ON t.id = u.upstream_id
        WHERE u.stream_table_id = s.id
    )),
    last_refresh_at = clock_timestamp(),
    last_action = coalesce(%(action)s, last_action),
    last_reason = coalesce(%(reason)s, last_reason),
    no_data_refreshes = no_data_refreshes + %(no_data)s,
    status = CASE WHEN status IN ('INITIALIZING', 'ERROR') THEN 'ACTIVE' ELSE status END,
    consecutive_errors = 0,
    last_error = NULL,
    transient_errors = 0,
    last_transient_error = NULL,
    failed_tries = 0,
    next_try_at = NULL,
    updated_at = clock_timestamp()
WHERE id = ANY (%(ids)s)
RETURNING id, data_timestamp;

-- record_promises --
UPDATE millstream.stream_tables AS s
SET promised_age = p.age
FROM unnest(%s::int8[], %s::interval[]) AS p (id, age)
WHERE s.id = p.id AND s.promised_age IS DISTINCT FROM p.age;

-- set_planned --
UPDATE millstream.stream_tables SET planned_by = %s, reads_clock = %s WHERE id = %s;

-- set_text --
UPDATE millstream.stream_tables
SET query = %s, canonical_query = %s, row_key = %s, updated_at = clock_timestamp()
WHERE id = %s;

-- redefine --
UPDATE millstream.stream_tables
SET query = %s, canonical_query = %s, row_key = %s, settings = %s, frontier = NULL, updated_at = clock_timestamp()
WHERE id = %s;

-- start_over --
UPDATE millstream.stream_tables SET frontier = NULL, updated_at = clock_timestamp() WHERE id = %s;

-- record_failure --
UPDATE millstream.stream_tables
SET consecutive_errors = consecutive_errors + 1, last_error = %s, updated_at = clock_timestamp()
WHERE id = %s
RETURNING consecutive_errors;

-- record_transient --
UPDATE millstream.stream_tables
SET transient_errors = transient_errors + 1, last_transient_error = %s, updated_at = clock_timestamp()
WHERE id = %s;

-- hold_off --
UPDATE millstream.stream_tables
SET failed_tries = failed_tries + 1, next_try_at = clock_timestamp() + %s, updated_at = clock_timestamp()
WHERE id = %s;

-- try_now --
UPDATE millstream.stream_tables
SET failed_tries = 0, next_try_at = NULL, updated_at = clock_timestamp()
WHERE id = ANY (%s) AND next_try_at IS NOT NULL;

-- try_errors_now --
UPDATE millstream.stream_tables
SET failed_tries = 0, next_try_at = NULL, updated_at = clock_timestamp()
WHERE status = 'ERROR' AND next_try_at IS NOT NULL;

-- set_status --
UPDATE millstream.stream_tables SET status = %s, updated_at = clock_timestamp() WHERE id = %s;

-- change --
-- A change ends the back-off, so that its effect is visible at once.
UPDATE millstream.stream_tables
SET schedule = coalesce(%(schedule)s, schedule),
    refresh_mode = coalesce(%(refresh_mode)s, refresh_mode),
    status = coalesce(%(status)s, status),
    cdc_mode = coalesce(%(cdc_mode)s, cdc_mode),
    consecutive_errors = CASE WHEN %(status)s = 'ACTIVE' THEN 0 ELSE consecutive_errors END,
    last_error = CASE WHEN %(status)s = 'ACTIVE' THEN NULL ELSE last_error END,
    transient_errors = CASE WHEN %(status)s = 'ACTIVE' THEN 0 ELSE transient_errors END,
    last_transient_error = CASE WHEN %(status)s = 'ACTIVE' THEN NULL ELSE last_transient_error END,
    failed_tries = 0,
    next_try_at = NULL,
    updated_at = clock_timestamp()
WHERE id = %(id)s;

-- remove --
DELETE FROM millstream.stream_tables WHERE id = %s;
