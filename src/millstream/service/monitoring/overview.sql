-- services --
SELECT role, host, pid, version, started_at, alive, silent, leads_since FROM millstream.service_status();

-- stream_tables --
SELECT stream_table, status, schedule, staleness, is_stale, held_back_by, rows, last_action, last_reason, last_refresh_at,
    consecutive_errors + transient_errors AS errors, error_code, next_try_at, last_verified_at, last_verified_ok
FROM millstream.status()
ORDER BY is_stale DESC, consecutive_errors + transient_errors > 0 DESC, status <> 'ACTIVE' DESC, stream_table;

-- sources --
SELECT DISTINCT source, cdc_mode, since, slot_lag_bytes, slot_lag_seconds, decoder_status, reason, alert
FROM millstream.pg_stat_stream_tables
ORDER BY source;

-- slots --
SELECT slot_name, decoder_status, confirmed_lsn::text, confirmed_lag_bytes, confirmed_lag_seconds, reconnects, interrupted_at,
    interrupted_by, heartbeat_at, held_by, trouble
FROM millstream.slot_health();

-- refreshes --
SELECT format('%%I.%%I', schema_name, name) AS stream_table, action, reason, status, started_at, duration_ms, rows_read, rows_inserted,
    rows_updated, rows_deleted, error_code
FROM millstream.refresh_history_info
ORDER BY id DESC
LIMIT %(refreshes)s;

-- checks --
SELECT check_name, status, detail, hint FROM millstream.health_check() WHERE status <> 'OK';
