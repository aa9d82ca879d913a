-- Views for other roles: the state of stream tables and their sources, and none of their rows. `roles.py` grants them.

CREATE VIEW millstream.stream_tables_info AS
SELECT
    s.schema_name, s.name, pg_get_userbyid(c.relowner) AS owner, s.status, s.refresh_mode, s.schedule, s.cdc_mode,
    s.frontier IS NOT NULL AS is_populated, s.data_timestamp, clock_timestamp() - s.data_timestamp AS staleness,
    s.last_refresh_at, s.last_action, s.last_reason, s.consecutive_errors,
    -- The text of an error may quote values of rows.
    substring(s.last_error FROM '\[(MS[0-9]{3})\]') AS last_error_code
FROM millstream.stream_tables AS s
LEFT JOIN pg_class AS c ON c.oid = s.relid;
COMMENT ON VIEW millstream.stream_tables_info IS 'How each stream table stands; for everybody who is a member of millstream_reader';

-- They read tables of the catalog, which only the service role may read.
ALTER FUNCTION millstream.slot_health() SECURITY DEFINER;
ALTER FUNCTION millstream.check_cdc_health() SECURITY DEFINER;
