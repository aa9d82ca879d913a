-- hold --
-- Conflicts only with the UPDATE of a takeover.
SELECT true FROM millstream.leadership WHERE epoch = %s FOR KEY SHARE;

-- register --
INSERT INTO millstream.services (instance, pid, host, version, role, backend_pid, backend_start)
SELECT %(instance)s, %(pid)s, %(host)s, %(version)s, 'STANDBY', a.pid, a.backend_start
FROM pg_stat_activity AS a
WHERE a.pid = %(backend_pid)s
ON CONFLICT (instance) DO UPDATE
SET role = 'STANDBY', backend_pid = excluded.backend_pid, backend_start = excluded.backend_start;

-- remove_gone --
DELETE FROM millstream.services AS s
WHERE NOT EXISTS (
    SELECT FROM pg_stat_activity AS a WHERE a.pid = s.backend_pid AND a.backend_start = s.backend_start
);

-- withdraw --
DELETE FROM millstream.services WHERE instance = %s;

-- services --
SELECT s.instance, s.pid, s.host, s.version, s.role, s.started_at, s.last_tick_at, a.pid IS NOT NULL,
    coalesce(extract(epoch FROM clock_timestamp() - a.state_change), 0)::float8
FROM millstream.services AS s
LEFT JOIN pg_stat_activity AS a ON a.pid = s.backend_pid AND a.backend_start = s.backend_start
ORDER BY s.role, s.started_at, s.instance;

-- take_over --
UPDATE millstream.leadership SET epoch = epoch + 1, instance = %s, since = clock_timestamp() RETURNING epoch;

-- set_roles --
UPDATE millstream.services AS s
SET role = w.role
FROM (SELECT instance, CASE WHEN instance = %s THEN 'LEADER' ELSE 'STANDBY' END AS role FROM millstream.services) AS w
WHERE w.instance = s.instance AND w.role <> s.role;

-- note_tick --
UPDATE millstream.services SET last_tick_at = clock_timestamp() WHERE instance = %s;

-- end_silent_leader --
-- The server shows the times of a session to its own role, and only if it tracks activity. The session is selected
-- first, since a condition that ends sessions could be evaluated before the others.
WITH silent AS MATERIALIZED (
    SELECT a.pid
    FROM millstream.services AS s
    JOIN pg_stat_activity AS a ON a.pid = s.backend_pid AND a.backend_start = s.backend_start
    WHERE s.role = 'LEADER' AND a.state_change < clock_timestamp() - make_interval(secs => %s)
)
SELECT pid, pg_terminate_backend(pid) FROM silent;

-- end_sessions --
WITH left_behind AS MATERIALIZED (
    SELECT pid
    FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
        AND application_name LIKE %s AND pid <> ALL (%s)
)
SELECT pid, pg_terminate_backend(pid) FROM left_behind;

-- former_leader --
SELECT instance FROM millstream.leadership;
