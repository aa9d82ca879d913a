-- Schema changes: the names of relations and columns in the text of a query.

-- A query is stored as text. With this table, a renamed relation or column is found by its oid or number, as in a view
-- of PostgreSQL, and the text is changed.
CREATE TABLE millstream.query_names (
    stream_table_id bigint NOT NULL REFERENCES millstream.stream_tables ON DELETE CASCADE,
    relid oid NOT NULL,
    schema_name name NOT NULL,
    name name NOT NULL,
    attnums int2[] NOT NULL,
    column_names name[] NOT NULL,
    PRIMARY KEY (stream_table_id, relid)
);
COMMENT ON TABLE millstream.query_names IS 'The relations that the text of a query names, with the names that it uses for them and for their columns';

-- The storage of a block depends on the types of its sources, which are not in its printed plan.
ALTER TABLE millstream.blocks ADD COLUMN storage text;
COMMENT ON COLUMN millstream.blocks.storage IS 'Digest of the statements that made what the block keeps; NULL in catalogs of older versions';

-- Functions of event triggers, which are created if the role may (see `event_triggers.py`). They run in the
-- transactions of other roles, whose DDL must never fail because of them; so they raise only the error that they are
-- made for. They ignore Millstream's own sessions, which are known by a setting.

-- PREPARE TRANSACTION is refused after a NOTIFY: if the server allows prepared transactions, nothing is sent.
CREATE FUNCTION millstream.announce_ddl() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_of_interest boolean;
BEGIN
    IF current_setting('millstream.users_path', true) IS NOT NULL OR current_setting('max_prepared_transactions')::int4 > 0 THEN
        RETURN;
    END IF;
    IF TG_EVENT = 'sql_drop' THEN
        is_of_interest := EXISTS (SELECT FROM pg_event_trigger_dropped_objects() AS o WHERE o.original AND NOT o.is_temporary);
    ELSE
        is_of_interest := EXISTS (
            SELECT FROM pg_event_trigger_ddl_commands() AS c WHERE c.schema_name IS DISTINCT FROM 'pg_temp'
        );
    END IF;
    IF is_of_interest THEN
        PERFORM pg_notify('millstream_wake', 'ddl');
    END IF;
EXCEPTION WHEN OTHERS THEN
    RETURN;
END
$$;
COMMENT ON FUNCTION millstream.announce_ddl IS 'Wakes the service after DDL of others';

CREATE FUNCTION millstream.block_source_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found record;
BEGIN
    IF current_setting('millstream.users_path', true) IS NOT NULL OR current_setting('millstream.source_ddl', true) = 'allow' THEN
        RETURN;
    END IF;
    BEGIN
        -- A copy of the database has oids of another one.
        IF NOT EXISTS (
            SELECT FROM millstream.settings AS g
            WHERE g.name = 'block_source_ddl' AND lower(g.value) IN ('true', 'on', 'yes', '1')
        ) OR NOT EXISTS (
            SELECT FROM millstream.installation AS i JOIN pg_database AS d ON d.oid = i.database_oid
            WHERE d.datname = current_database()
        ) THEN
            RETURN;
        END IF;
        IF TG_EVENT = 'sql_drop' THEN
            SELECT format('%I.%I', s.schema_name, s.name) AS source,
                CASE WHEN o.objsubid > 0 THEN format('column %I of ', k.name) ELSE 'table ' END AS part,
                string_agg(DISTINCT format('%I.%I', t.schema_name, t.name), ', ') AS readers
            INTO found
            FROM pg_event_trigger_dropped_objects() AS o
            JOIN millstream.sources AS s ON s.relid = o.objid AND o.classid = 'pg_class'::regclass
            JOIN millstream.dependencies AS d ON d.source_relid = s.relid
            JOIN millstream.stream_tables AS t ON t.id = d.stream_table_id
            LEFT JOIN LATERAL jsonb_to_recordset(s.columns) AS k (attnum int2, name name) ON k.attnum = o.objsubid
            WHERE o.objsubid = 0 OR k.name::text = ANY (d.columns)
            GROUP BY 1, 2
            LIMIT 1;
        ELSE
            SELECT format('%I.%I', s.schema_name, s.name) AS source, format('column %I of ', k.name) AS part,
                string_agg(DISTINCT format('%I.%I', t.schema_name, t.name), ', ') AS readers
            INTO found
            FROM pg_event_trigger_ddl_commands() AS c
            JOIN millstream.sources AS s ON s.relid = c.objid AND c.classid = 'pg_class'::regclass
            CROSS JOIN LATERAL jsonb_to_recordset(s.columns)
                AS k (attnum int2, name name, type_oid oid, typmod int4, "collation" oid)
            JOIN millstream.dependencies AS d ON d.source_relid = s.relid AND k.name::text = ANY (d.columns)
            JOIN millstream.stream_tables AS t ON t.id = d.stream_table_id
            LEFT JOIN pg_attribute AS a ON a.attrelid = s.relid AND a.attnum = k.attnum AND NOT a.attisdropped
            WHERE (a.attname, a.atttypid, a.atttypmod, a.attcollation)
                IS DISTINCT FROM (k.name, k.type_oid, k.typmod, k."collation")
            GROUP BY 1, 2
            LIMIT 1;
        END IF;
    EXCEPTION WHEN OTHERS THEN
        RETURN;
    END;
    IF found.source IS NOT NULL THEN
        RAISE EXCEPTION '%', format('%s%s is read by stream tables', found.part, found.source) USING
            ERRCODE = 'dependent_objects_still_exist',
            DETAIL = format('Stream tables: %s.', found.readers),
            HINT = 'The setting block_source_ddl of Millstream refuses this. Drop these stream tables first, or alter their queries; or SET millstream.source_ddl = ''allow'' in this session, and they follow as far as they can.';
    END IF;
END
$$;
COMMENT ON FUNCTION millstream.block_source_ddl IS 'Refuses changes of columns that stream tables read, if the setting block_source_ddl in this database says so';
REVOKE ALL ON FUNCTION millstream.announce_ddl, millstream.block_source_ddl FROM PUBLIC;
