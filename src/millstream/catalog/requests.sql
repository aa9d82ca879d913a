-- waiting --
-- Without the arguments, which may be large. Later requests are read when these are answered. Each role has its turn. Of the
-- refreshes of one stream table only the first is read: it may have to wait as long as another refresh of the table takes.
SELECT q.id, q.kind, q.stream_table
FROM (
    SELECT n.id, n.kind, n.stream_table, row_number() OVER (PARTITION BY n.requested_by ORDER BY n.id) AS turn
    FROM (
        SELECT w.id, w.kind, w.stream_table, w.requested_by,
            row_number() OVER (PARTITION BY w.requested_by, w.kind, w.stream_table ORDER BY w.id) AS number
        FROM (SELECT * FROM millstream.requests WHERE status = 'WAITING' ORDER BY id LIMIT 10000) AS w
    ) AS n
    WHERE n.number = 1 OR n.kind NOT IN ('refresh', 'verify')
) AS q
ORDER BY q.turn, q.id
LIMIT 100;

-- start --
-- The time of the first try: an object that was created for the request is younger.
UPDATE millstream.requests
SET status = 'RUNNING', tries = tries + 1, started_at = coalesce(started_at, clock_timestamp())
WHERE id = %s AND status = 'WAITING'
RETURNING id, kind, stream_table, arguments, search_path, requested_by::text, started_at, tries - 1;

-- answer --
UPDATE millstream.requests
SET status = %(status)s, finished_at = clock_timestamp(), result = %(result)s, error = %(error)s
WHERE id = %(id)s AND status = 'RUNNING';

-- put_back --
UPDATE millstream.requests SET status = 'WAITING', tries = tries - 1 WHERE id = %s AND status = 'RUNNING';

-- take_up --
UPDATE millstream.requests
SET status = 'WAITING'
WHERE status = 'RUNNING' AND tries < %(most_tries)s AND id = coalesce(%(id)s, id);

-- interrupted --
SELECT id, kind, stream_table FROM millstream.requests WHERE status = 'RUNNING' AND id = coalesce(%(id)s, id) ORDER BY id;

-- prune --
DELETE FROM millstream.requests WHERE status IN ('DONE', 'FAILED') AND finished_at < clock_timestamp() - %s;

-- target --
-- The stream table of a name, found along a search_path, and when it was created.
SELECT t.id, t.relid::int8, t.created_at FROM millstream.stream_table_along(%s, %s) AS t;

-- rights --
-- May the role ask for this? Does it have the rights of the table's owner, and of the catalog's owner? NULL if the role
-- does not exist.
SELECT
    millstream.may_ask(r.rolname, %(kind)s, %(arguments)s, %(relid)s::oid),
    coalesce(pg_has_role(r.oid, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = %(relid)s::oid), 'USAGE'), false),
    pg_has_role(r.oid, (SELECT n.nspowner FROM pg_namespace AS n WHERE n.nspname = 'millstream'), 'USAGE')
FROM pg_roles AS r
WHERE r.rolname = %(role)s;

-- new_name --
-- The schema and the name of a new table, and whether the role may create it there. The default is the first schema of
-- the search_path.
SELECT p.schema_name, n.parts[cardinality(n.parts)], s.oid IS NOT NULL, coalesce(has_schema_privilege(%(role)s::name, s.oid, 'CREATE'), false)
FROM parse_ident(%(name)s) AS n (parts)
CROSS JOIN LATERAL (
    SELECT CASE WHEN cardinality(n.parts) = 2 THEN n.parts[1] ELSE (
        SELECT coalesce(replace(m[1], '""', '"'), m[2]) FROM regexp_matches(%(path)s, '"((?:[^"]|"")+)"|([^", ]+)') AS m
    ) END
) AS p (schema_name)
LEFT JOIN pg_namespace AS s ON s.nspname = p.schema_name;

-- send --
SELECT millstream.request(%s, %s, %s);

-- look --
SELECT r.status, r.result, r.error FROM millstream.requests AS r WHERE r.id = %s;

-- service_is_running --
SELECT millstream.service_is_running();
