-- state --
-- Whether the role may create event triggers, and the existing ones.
SELECT
    EXISTS (
        SELECT FROM pg_roles AS r
        WHERE (r.rolname = current_user AND r.rolsuper)
            OR (r.rolname IN ('rds_superuser', 'cloudsqlsuperuser', 'azure_pg_admin') AND pg_has_role(r.oid, 'USAGE'))
    ),
    ARRAY(
        SELECT e.evtname::text
        FROM pg_event_trigger AS e
        JOIN pg_proc AS p ON p.oid = e.evtfoid
        WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'millstream') AND e.evtenabled <> 'D'
    );
