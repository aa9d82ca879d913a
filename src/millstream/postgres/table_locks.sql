-- holders --
-- The sessions that hold a lock on one of these tables, or on any that is not the server's own, that this session waits
-- for. A prepared transaction has no process; the lock that it holds on its own id leads to its name.
SELECT DISTINCT CASE
    WHEN l.pid IS NULL THEN 'prepared transaction ' || coalesce(quote_literal(p.gid), l.virtualtransaction)
    ELSE 'process ' || l.pid || coalesce(' (' || nullif(concat_ws(
        ', ', nullif(a.application_name, ''), a.state, 'since ' || date_trunc('second', a.xact_start)
    ), '') || ')', '')
END
FROM pg_locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN pg_locks AS own ON l.pid IS NULL AND own.pid IS NULL
    AND own.virtualtransaction = l.virtualtransaction AND own.locktype = 'transactionid'
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = own.transactionid
WHERE l.locktype = 'relation' AND l.granted
    AND CASE WHEN %(oids)s::oid[] IS NULL THEN l.relation >= 16384 ELSE l.relation = ANY (%(oids)s) END
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
    AND l.pid IS DISTINCT FROM pg_backend_pid()
ORDER BY 1
LIMIT 5;
