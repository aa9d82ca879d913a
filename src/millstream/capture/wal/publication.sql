-- entries --
-- The entries of a publication for these tables. A partition is published with its root, under its own name.
SELECT r.oid FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid
WHERE p.pubname = %s AND r.prrelid = ANY (%s::oid[])
ORDER BY r.oid;

-- whole --
-- Does the publication publish all operations, in the form that the reader expects?
SELECT p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND NOT p.pubviaroot
    AND NOT EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = p.oid AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL))
FROM pg_publication AS p WHERE p.pubname = %s;

-- identities --
-- The tables with rows of their own whose WAL does not have the full old row.
SELECT c.oid, n.nspname, c.relname
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::oid[]) AND c.relkind = 'r' AND c.relreplident <> 'f'
ORDER BY c.oid;

-- unpublished --
-- The tables with rows of their own that are not in the publication.
SELECT c.oid, n.nspname, c.relname
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::oid[]) AND c.relkind = 'r' AND NOT EXISTS (
    SELECT FROM pg_publication_tables AS p
    WHERE p.pubname = %s AND p.schemaname = n.nspname AND p.tablename = c.relname
)
ORDER BY c.oid;

-- former --
-- The replica identities of these tables, in the form of ALTER TABLE.
SELECT c.oid, CASE c.relreplident
    WHEN 'd' THEN 'DEFAULT' WHEN 'n' THEN 'NOTHING' WHEN 'f' THEN 'FULL'
    ELSE 'USING INDEX ' || (
        SELECT quote_ident(x.relname) FROM pg_index AS i JOIN pg_class AS x ON x.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND i.indisreplident
    )
END
FROM pg_class AS c WHERE c.oid = ANY (%s::oid[]);

-- server --
-- Facts about the server, and the privileges of the role, that capture from WAL depends on.
SELECT
    current_setting('wal_level'), current_setting('server_version_num')::int,
    (SELECT count(*) FROM pg_replication_slots) < current_setting('max_replication_slots')::int,
    (SELECT count(*) FROM pg_stat_replication) < current_setting('max_wal_senders')::int,
    (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user)
        OR EXISTS (
            SELECT FROM pg_roles WHERE rolname IN ('rds_replication', 'azure_pg_admin', 'cloudsqlsuperuser')
                AND pg_has_role(current_user, oid, 'USAGE')
        ),
    has_database_privilege(current_database(), 'CREATE'), pg_is_in_recovery(), current_user::text;

-- tables --
-- Facts that prevent capturing a table from WAL, or make its images incomplete.
SELECT
    c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, pg_has_role(c.relowner, 'USAGE'),
    ARRAY(
        SELECT a.attname::text FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            AND (a.attgenerated = 'v' OR (a.attgenerated = 's' AND current_setting('server_version_num')::int < 180000))
        ORDER BY a.attnum
    ),
    EXISTS (SELECT FROM pg_subscription_rel AS s WHERE s.srrelid = c.oid)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::oid[])
ORDER BY c.oid;
