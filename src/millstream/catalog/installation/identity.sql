-- identities --
-- The recorded identity, the current one, and whether the role may read the server's identifier.
SELECT
    i.system_identifier, i.database_oid, i.catalog_oids,
    (SELECT oid FROM pg_database WHERE datname = current_database()),
    ARRAY(
        SELECT c.oid
        FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'millstream' AND c.relname IN ('installation', 'migrations', 'settings', 'stream_tables', 'sources')
        ORDER BY c.relname
    ),
    has_function_privilege('pg_control_system()', 'EXECUTE')
FROM millstream.installation AS i;

-- system_identifier --
SELECT system_identifier::text FROM pg_control_system();

-- record --
UPDATE millstream.installation SET system_identifier = %s, database_oid = %s, catalog_oids = %s;

-- parted --
-- Does an oid in the catalog belong to an object of another name, or a name to another oid?
SELECT EXISTS (
    SELECT FROM (
        SELECT relid, schema_name, name FROM millstream.stream_tables WHERE relid IS NOT NULL
        UNION
        SELECT relid, schema_name, name FROM millstream.sources
    ) AS k
    JOIN pg_class AS c ON true
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE (c.oid = k.relid) <> (n.nspname = k.schema_name AND c.relname = k.name)
) OR EXISTS (
    SELECT FROM millstream.slots WHERE database_oid <> (SELECT oid FROM pg_database WHERE datname = current_database())
);
