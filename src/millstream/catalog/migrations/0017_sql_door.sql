-- SQL functions by which roles ask the service for work, and procedures that wait for its answers.
--
-- PostgreSQL decides which role asks. Inside a SECURITY DEFINER function current_user is its owner, and session_user
-- and the setting `role` name the role that has logged in: while ANALYZE or REFRESH MATERIALIZED VIEW of a superuser
-- evaluates code of a table's owner, they name the superuser. So functions with the rights of their caller insert
-- requests through a view, and the column requested_by, which no role may write, has the default current_user.

ALTER TABLE millstream.requests ALTER COLUMN requested_by SET DEFAULT current_user;
ALTER TABLE millstream.requests ADD COLUMN tries integer NOT NULL DEFAULT 0;
-- An object, since in an array the operator ? would not find the names of arguments.
ALTER TABLE millstream.requests ADD CONSTRAINT requests_arguments_check CHECK (jsonb_typeof(arguments) = 'object');
COMMENT ON COLUMN millstream.requests.tries IS 'How often a service has begun it: one that ends services is given up';
CREATE INDEX requests_finished_idx ON millstream.requests (finished_at) WHERE status IN ('DONE', 'FAILED');

CREATE VIEW millstream.own_requests WITH (security_barrier) AS
SELECT r.id, r.kind, r.stream_table, r.arguments, r.search_path, r.requested_at, r.status, r.started_at, r.finished_at, r.result, r.error
FROM millstream.requests AS r
WHERE r.requested_by = current_user;
COMMENT ON VIEW millstream.own_requests IS 'Requests of the current role, and their answers; the functions insert into it';

CREATE FUNCTION millstream.service_is_running() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM millstream.services AS s
        -- When a session of another role has started is hidden.
        JOIN pg_stat_activity AS a ON a.pid = s.backend_pid AND coalesce(a.backend_start = s.backend_start, true)
    )
$$;
COMMENT ON FUNCTION millstream.service_is_running IS 'True if a process of the command run works on this database';

-- What a role may ask for: a role with the rights of the catalog's owner everything; an operator everything except
-- dropping a stream table and changing its query; other roles only work on stream tables that they own.
CREATE FUNCTION millstream.may_ask(asking name, kind text, arguments jsonb, relid oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(pg_has_role(a.oid, n.nspowner, 'USAGE'), false)
        OR coalesce(pg_has_role(a.oid, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = $4), 'USAGE'), false)
        OR $2 <> 'drop' AND NOT ($2 = 'alter' AND $3 ? 'query') AND EXISTS (
            -- An operator's role that somebody else has created is granted nothing, and counts for nothing.
            SELECT FROM pg_roles AS o
            WHERE o.rolname = 'millstream_operator' AND pg_has_role(a.oid, o.oid, 'USAGE')
                AND has_column_privilege(o.oid, 'millstream.own_requests', 'kind', 'INSERT')
        )
    FROM pg_roles AS a, pg_namespace AS n
    WHERE a.rolname = $1 AND n.nspname = 'millstream'
$$;
COMMENT ON FUNCTION millstream.may_ask IS 'True if a role may ask for this; relid is the table of the stream table that it is about, if there is one';

-- The stream table of that name, found along a search_path; NULL if there is none. The path is a list of names as
-- quote_ident writes them. It is not resolved by the server, which would leave out schemas that the catalog's owner may
-- not use.
CREATE FUNCTION millstream.stream_table_along(name text, path text) RETURNS SETOF millstream.stream_tables
LANGUAGE sql STABLE ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.*
    FROM parse_ident($1) AS n (parts)
    JOIN millstream.stream_tables AS t ON t.name = n.parts[cardinality(n.parts)]
    LEFT JOIN regexp_matches($2, '"((?:[^"]|"")+)"|([^", ]+)', 'g') WITH ORDINALITY AS p (name, position)
        ON t.schema_name = coalesce(replace(p.name[1], '""', '"'), p.name[2])
    WHERE CASE cardinality(n.parts) WHEN 2 THEN t.schema_name = n.parts[1] WHEN 1 THEN p.position IS NOT NULL ELSE false END
    ORDER BY p.position
    LIMIT 1
$$;
COMMENT ON FUNCTION millstream.stream_table_along IS 'The stream table of a name, looked for along a search_path; NULL if there is none';

-- All checks that are possible before the service reads the request. The service checks the rights again.
CREATE FUNCTION millstream.check_request() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of_query boolean := NEW.kind IN ('validate', 'explain_query');
    creates boolean := NEW.kind IN ('create', 'create_or_replace');
    parts text[];
    bad record;
    target_relid oid;
BEGIN
    IF jsonb_typeof(NEW.arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'bad value for arguments: %', coalesce(quote_literal(left(NEW.arguments::text, 100)), 'NULL') USING
            ERRCODE = 'MS005', HINT = 'Expected a JSON object of names and values.';
    END IF;
    IF NOT of_query THEN
        BEGIN
            parts := parse_ident(NEW.stream_table);
        EXCEPTION WHEN invalid_parameter_value THEN
            parts := NULL;
        END;
        IF parts IS NULL OR cardinality(parts) > 2 THEN
            RAISE EXCEPTION 'bad value for name: %', coalesce(quote_literal(NEW.stream_table), 'NULL') USING
                ERRCODE = 'MS005', HINT = 'Expected a table name, with or without a schema.';
        END IF;
    END IF;
    SELECT g.name, NEW.arguments ->> g.name AS value, g.expected INTO bad
    FROM (VALUES
        (1, 'query', creates OR of_query, NULL, 'a query'),
        (2, 'schedule', creates, NULL, 'a duration, a cron expression, continuous, calculated or manual'),
        (3, 'refresh_mode', creates, '{AUTO,DIFFERENTIAL,FULL}', 'AUTO, DIFFERENTIAL or FULL'),
        (4, 'cdc_mode', false, '{trigger,auto,wal}', 'trigger, auto or wal'),
        (5, 'status', false, '{ACTIVE,SUSPENDED}', 'ACTIVE or SUSPENDED'),
        (6, 'initialize', creates, '{true,false}', 'true or false')
    ) AS g (position, name, is_needed, choices, expected)
    WHERE CASE
        WHEN NOT NEW.arguments ? g.name THEN g.is_needed
        ELSE btrim(NEW.arguments ->> g.name) = '' OR NEW.arguments ->> g.name <> ALL (g.choices::text[])
    END
    ORDER BY g.position
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'bad value for %: %', bad.name, coalesce(quote_literal(left(bad.value, 100)), 'NULL') USING
            ERRCODE = 'MS005', HINT = format('Expected %s.', bad.expected);
    END IF;
    IF octet_length(NEW.arguments::text) > 1000000 THEN
        RAISE EXCEPTION 'bad value for query: it is too long' USING
            ERRCODE = 'MS005', HINT = 'Expected a request of at most 1 MB. Make a view of parts of the query.';
    END IF;
    IF NEW.kind IN ('alter', 'drop', 'refresh', 'verify') THEN
        SELECT t.relid INTO target_relid FROM millstream.stream_table_along(NEW.stream_table, NEW.search_path) AS t;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'stream table "%" does not exist', NEW.stream_table USING
                ERRCODE = 'MS202', HINT = 'See the names with: SELECT schema_name, name FROM millstream.stream_tables_info.';
        END IF;
    END IF;
    IF NOT coalesce(millstream.may_ask(NEW.requested_by, NEW.kind, NEW.arguments, target_relid), false) THEN
        RAISE EXCEPTION 'role "%" may not ask for this: %', NEW.requested_by, concat_ws(' ', NEW.kind, NEW.stream_table) USING
            ERRCODE = 'MS004', HINT = CASE
                WHEN target_relid IS NULL THEN format('As an administrator: GRANT millstream_operator TO %I;', NEW.requested_by)
                ELSE format('Ask as role %I, the owner of the stream table, or as one of its members.', (
                    SELECT c.relowner::regrole FROM pg_class AS c WHERE c.oid = target_relid
                ))
            END;
    END IF;
    IF (
        SELECT count(*) FROM millstream.requests AS r
        WHERE r.requested_by = NEW.requested_by AND r.status IN ('WAITING', 'RUNNING')
    ) >= 1000 THEN
        RAISE EXCEPTION 'role "%" has 1000 requests that are not done', NEW.requested_by USING
            ERRCODE = 'MS503', HINT = 'Wait until some of them are done: CALL millstream.wait_for(...).';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION millstream.check_request IS 'Refuses a request that could not be executed, or that its role may not make';
CREATE TRIGGER check_request BEFORE INSERT ON millstream.requests FOR EACH ROW EXECUTE FUNCTION millstream.check_request();

CREATE FUNCTION millstream.announce_request() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('millstream_wake', 'request');
    IF NOT millstream.service_is_running() THEN
        RAISE WARNING 'the request waits: no service is running on this database' USING
            HINT = 'Start one as the role that owns the catalog: millstream run.';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION millstream.announce_request IS 'Wakes the service; warns where none is running';
CREATE TRIGGER announce_request AFTER INSERT ON millstream.requests FOR EACH STATEMENT EXECUTE FUNCTION millstream.announce_request();

-- -- functions for users
-- --------------------------------------------------------------------------------------------------- They run with the
-- rights and the search_path of their caller. Their bodies are parsed here, so that no name in them is resolved along
-- that path.

CREATE FUNCTION millstream.request(kind text, name text, arguments jsonb) RETURNS bigint
LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO millstream.own_requests (kind, stream_table, arguments, search_path)
    VALUES (
        request.kind, request.name, jsonb_strip_nulls(request.arguments),
        coalesce((
            SELECT string_agg(quote_ident(p.schema_name), ', ' ORDER BY p.position)
            FROM unnest(current_schemas(false)) WITH ORDINALITY AS p (schema_name, position)
            WHERE left(p.schema_name::text, 7) <> 'pg_temp'
        ), '')
    )
    RETURNING id;
END;
COMMENT ON FUNCTION millstream.request IS 'Ask the service for something; returns the id of the request';

CREATE FUNCTION millstream.create_stream_table(
    name text, query text, schedule text DEFAULT '1m', refresh_mode text DEFAULT 'AUTO', initialize boolean DEFAULT true,
    cdc_mode text DEFAULT NULL, settings jsonb DEFAULT NULL, assume_immutable text[] DEFAULT NULL
) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT millstream.request('create', name, jsonb_build_object(
        'query', query, 'schedule', schedule, 'refresh_mode', refresh_mode, 'initialize', initialize,
        'cdc_mode', cdc_mode, 'settings', settings, 'assume_immutable', assume_immutable
    ));
END;
COMMENT ON FUNCTION millstream.create_stream_table IS 'Ask for a stream table over a query; it will belong to the role that asks';

CREATE FUNCTION millstream.create_or_replace_stream_table(
    name text, query text, schedule text DEFAULT '1m', refresh_mode text DEFAULT 'AUTO', initialize boolean DEFAULT true,
    cdc_mode text DEFAULT NULL, settings jsonb DEFAULT NULL, assume_immutable text[] DEFAULT NULL
) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT millstream.request('create_or_replace', name, jsonb_build_object(
        'query', query, 'schedule', schedule, 'refresh_mode', refresh_mode, 'initialize', initialize,
        'cdc_mode', cdc_mode, 'settings', settings, 'assume_immutable', assume_immutable
    ));
END;
COMMENT ON FUNCTION millstream.create_or_replace_stream_table IS 'Ask for a stream table like this: it is created, altered, or left as it is';

CREATE FUNCTION millstream.alter_stream_table(
    name text, schedule text DEFAULT NULL, refresh_mode text DEFAULT NULL, status text DEFAULT NULL, query text DEFAULT NULL,
    cdc_mode text DEFAULT NULL
) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT millstream.request('alter', name, jsonb_build_object(
        'schedule', schedule, 'refresh_mode', refresh_mode, 'status', status, 'query', query, 'cdc_mode', cdc_mode
    ));
END;
COMMENT ON FUNCTION millstream.alter_stream_table IS 'Ask to change what is given; status ACTIVE resumes a stream table, SUSPENDED stops it';

CREATE FUNCTION millstream.drop_stream_table(name text, cascade boolean DEFAULT false) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT millstream.request('drop', name, jsonb_build_object('cascade', cascade));
END;
COMMENT ON FUNCTION millstream.drop_stream_table IS 'Ask to drop a stream table; with cascade also what depends on it';

CREATE FUNCTION millstream.refresh_stream_table(name text) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT millstream.request('refresh', name, '{}');
END;
COMMENT ON FUNCTION millstream.refresh_stream_table IS 'Ask to refresh a stream table now';

CREATE FUNCTION millstream.verify_stream_table(name text) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT millstream.request('verify', name, '{}');
END;
COMMENT ON FUNCTION millstream.verify_stream_table IS 'Ask to refresh a stream table and to compare it with its query';

CREATE FUNCTION millstream.validate_query(query text) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT millstream.request('validate', NULL, jsonb_build_object('query', query));
END;
COMMENT ON FUNCTION millstream.validate_query IS 'Ask what a stream table over a query would be, or why there cannot be one';

CREATE FUNCTION millstream.explain_query(query text) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT millstream.request('explain_query', NULL, jsonb_build_object('query', query));
END;
COMMENT ON FUNCTION millstream.explain_query IS 'Ask how a stream table over a query would be maintained';

-- -- waiting ---------------------------------------------------------------------------------------------------------------

CREATE FUNCTION millstream.raise_answer(error jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- RAISE takes no NULL, and an empty detail or hint would be shown.
    code text := coalesce(substring(error ->> 'code' FROM '^[0-9A-Z]{5}$'), 'MS000');
    message text := coalesce(nullif(error ->> 'message', ''), 'the request failed');
    detail text := nullif(error ->> 'detail', '');
    hint text := nullif(error ->> 'hint', '');
BEGIN
    IF detail IS NOT NULL AND hint IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail, HINT = hint;
    ELSIF hint IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, HINT = hint;
    ELSIF detail IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail;
    END IF;
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message;
END
$$;
COMMENT ON FUNCTION millstream.raise_answer IS 'Raises the error that the service has answered with';

-- A procedure that commits can have neither SECURITY DEFINER nor a search_path of its own: all names in it are qualified.
CREATE PROCEDURE millstream.wait_for(request bigint, timeout interval DEFAULT '1 minute', INOUT result jsonb DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    deadline pg_catalog.timestamptz;
    pause pg_catalog.float8 := 0.002;
    status pg_catalog.text;
    error pg_catalog.jsonb;
    hint pg_catalog.text;
BEGIN
    -- An argument of the call may have made the request.
    COMMIT;
    deadline := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) coalesce(timeout, '1 minute');
    LOOP
        SELECT r.status, r.result, r.error INTO status, result, error
        FROM millstream.own_requests AS r WHERE r.id OPERATOR(pg_catalog.=) request;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'request % does not exist', coalesce(request::pg_catalog.text, 'NULL') USING
                ERRCODE = 'MS502', HINT = 'A request is seen only by the role that made it, until its age exceeds history_retention.';
        END IF;
        IF status OPERATOR(pg_catalog.=) 'DONE' THEN
            RETURN;
        ELSIF status OPERATOR(pg_catalog.=) 'FAILED' THEN
            PERFORM millstream.raise_answer(error);
        END IF;
        IF pg_catalog.clock_timestamp() OPERATOR(pg_catalog.>) deadline THEN
            hint := CASE
                WHEN millstream.service_is_running() THEN 'It is not cancelled. Wait again with a longer timeout.'
                ELSE 'No service is running on this database. Start one: millstream run.'
            END;
            RAISE EXCEPTION 'request % is not done yet', request USING
                ERRCODE = 'MS501', DETAIL = pg_catalog.format('Its status is %s.', status), HINT = hint;
        END IF;
        -- The next look must not see the snapshot of this one.
        COMMIT;
        PERFORM pg_catalog.pg_sleep(pause);
        pause := LEAST(pause OPERATOR(pg_catalog.*) 1.5, 0.1);
    END LOOP;
END
$$;
COMMENT ON PROCEDURE millstream.wait_for IS 'Wait until a request is done; raise its error if it failed. To be called outside a transaction';

-- -- read your own writes ----------------------------------------------------------------------------------------------------

-- A stream table has everything that a snapshot sees if its content frontier does. If it reads others, that is not its
-- own frontier, since they may have been older when it was refreshed. The frontier of a stream table whose sources do
-- not change does not advance; it has everything if no change that the snapshot sees waits in the buffers, for it or
-- for those that it reads.

ALTER TABLE millstream.stream_tables ADD COLUMN content_frontier pg_snapshot;
COMMENT ON COLUMN millstream.stream_tables.content_frontier IS 'What its rows certainly contain of the sources, to any depth: what its frontier and the content frontiers of what it read have in common';
UPDATE millstream.stream_tables AS s
SET content_frontier = s.frontier
WHERE NOT EXISTS (SELECT FROM millstream.upstreams AS u WHERE u.stream_table_id = s.id);

CREATE FUNCTION millstream.common_snapshot(snapshots pg_snapshot[]) RETURNS pg_snapshot
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH given AS MATERIALIZED (
        SELECT s, min(pg_snapshot_xmax(s)) OVER () AS xmax, bool_or(s IS NULL) OVER () AS is_unknown FROM unnest($1) AS s
    ), running AS (
        SELECT DISTINCT x FROM given AS g CROSS JOIN LATERAL pg_snapshot_xip(g.s) AS x WHERE x < g.xmax
    )
    SELECT format(
        '%s:%s:%s', coalesce((SELECT min(x) FROM running), g.xmax), g.xmax, (SELECT string_agg(x::text, ',' ORDER BY x) FROM running)
    )::pg_snapshot
    FROM given AS g
    WHERE NOT g.is_unknown
    LIMIT 1
$$;
COMMENT ON FUNCTION millstream.common_snapshot IS 'What all of these snapshots see; NULL if one of them is NULL';

-- True if the first snapshot sees whatever the second one sees, and that transaction.
CREATE FUNCTION millstream.sees(frontier pg_snapshot, seen pg_snapshot, own xid8) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT $1 IS NOT NULL AND $2 IS NOT NULL AND pg_snapshot_xmax($1) >= pg_snapshot_xmax($2)
        AND NOT EXISTS (SELECT FROM pg_snapshot_xip($1) AS x WHERE pg_visible_in_snapshot(x, $2))
        AND ($3 IS NULL OR pg_visible_in_snapshot($3, $1))
$$;
COMMENT ON FUNCTION millstream.sees IS 'True if a frontier contains what a snapshot sees, and a transaction, if one is given';

-- True if changes of a source wait for a stream table that the snapshot sees; all changes count if there is no snapshot.
CREATE FUNCTION millstream.lacks(frontier pg_snapshot, source oid, seen pg_snapshot, own xid8, reached pg_lsn) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other_origin "char";
    may_come boolean;
    is_found boolean;
BEGIN
    -- While some reader has not passed a cutover, rows of both origins count. WAL capture stores changes after their commit.
    SELECT CASE WHEN s.cutovers <> '[]' THEN '' WHEN s.cdc_mode = 'WAL' THEN 't' ELSE 'l' END,
        (s.cdc_mode <> 'TRIGGER' OR s.cutovers <> '[]') AND NOT EXISTS (SELECT FROM millstream.slots AS o WHERE o.cursor >= $5)
    INTO other_origin, may_come
    FROM millstream.sources AS s WHERE s.relid = $2;
    IF other_origin IS NULL OR may_come OR to_regclass(format('millstream_changes.changes_%s', $2)) IS NULL THEN
        RETURN true;
    END IF;
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM millstream_changes.changes_%s WHERE xid >= $1 AND NOT pg_visible_in_snapshot(xid, $2)'
        ' AND origin <> $3 AND ($4 IS NULL OR pg_visible_in_snapshot(xid, $4) OR xid = $5))',
        $2
    ) INTO is_found USING pg_snapshot_xmin($1), $1, other_origin, $3, $4;
    RETURN is_found;
END
$$;
COMMENT ON FUNCTION millstream.lacks IS 'True if changes of a source that a snapshot sees are not in a frontier; NULL for the snapshot: any change';

-- STABLE: catalog and buffers are seen at one moment, that of the statement which calls it.
CREATE FUNCTION millstream.is_visible(relid oid, seen pg_snapshot, own xid8, reached pg_lsn) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE unsure (id) AS (
        SELECT t.id
        FROM millstream.stream_tables AS t
        WHERE t.relid = $1 AND (t.frontier IS NULL OR NOT millstream.sees(t.content_frontier, $2, $3))
        UNION
        SELECT t.id
        FROM unsure AS r
        JOIN millstream.upstreams AS u ON u.stream_table_id = r.id
        JOIN millstream.stream_tables AS t ON t.id = u.upstream_id
        WHERE t.frontier IS NULL OR NOT millstream.sees(t.content_frontier, $2, $3)
    )
    SELECT $2 IS NOT NULL AND NOT EXISTS (
        SELECT
        FROM unsure AS f
        JOIN millstream.stream_tables AS r ON r.id = f.id
        WHERE r.frontier IS NULL OR EXISTS (
            SELECT
            FROM millstream.dependencies AS d
            LEFT JOIN millstream.stream_tables AS u ON u.relid = d.source_relid
            WHERE d.stream_table_id = r.id AND CASE
                -- What a stream table has changed was committed by its refresh, which the snapshot need not see.
                WHEN u.id IS NOT NULL THEN millstream.lacks(r.frontier, d.source_relid, NULL, NULL, NULL)
                ELSE NOT millstream.sees(r.frontier, $2, $3) AND millstream.lacks(r.frontier, d.source_relid, $2, $3, $4)
            END
        )
    )
    FROM millstream.stream_tables AS s
    WHERE s.relid = $1
$$;
COMMENT ON FUNCTION millstream.is_visible IS 'True if a stream table has everything that a snapshot sees, and a transaction, if one is given; WAL is read up to that position';

-- The default of seen is evaluated once, at the call, so it sees what the caller has committed before.
CREATE PROCEDURE millstream.wait_visible(name text, timeout interval DEFAULT '1 minute', seen pg_snapshot DEFAULT pg_current_snapshot())
LANGUAGE plpgsql AS $$
DECLARE
    -- A snapshot does not tell whether it sees the transaction that took it: what that has written so far is committed below.
    own pg_catalog.xid8 := pg_catalog.pg_current_xact_id_if_assigned();
    deadline pg_catalog.timestamptz;
    pause pg_catalog.float8 := 0.002;
    reached pg_catalog.pg_lsn;
    is_visible pg_catalog.bool;
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
                HINT = 'Wait longer, or ask for a refresh: SELECT millstream.refresh_stream_table(...). One that it reads may be suspended or manual.';
        END IF;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(pause);
        pause := LEAST(pause OPERATOR(pg_catalog.*) 1.5, 0.1);
    END LOOP;
END
$$;
COMMENT ON PROCEDURE millstream.wait_visible IS 'Wait until a stream table has everything that the caller sees now, its own commits included. To be called outside a transaction';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA millstream FROM PUBLIC;
REVOKE ALL ON ALL PROCEDURES IN SCHEMA millstream FROM PUBLIC;
