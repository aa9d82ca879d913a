-- server --
SELECT current_setting('server_version'), pg_is_in_recovery();

-- role --
SELECT current_user::text, current_setting('is_superuser')::boolean;

-- rights --
SELECT current_user::text, current_database()::text,
    has_database_privilege(current_database(), 'CREATE'), has_database_privilege(current_database(), 'TEMPORARY');

-- prepared --
-- Of this database, oldest first.
SELECT gid, extract(epoch FROM clock_timestamp() - prepared)
FROM pg_prepared_xacts
WHERE database = current_database()
ORDER BY prepared
LIMIT 5;

-- blocks_ddl --
SELECT FROM millstream.settings WHERE name = 'block_source_ddl' AND lower(value) IN ('true', 'on', 'yes', '1');
