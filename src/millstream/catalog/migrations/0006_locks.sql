-- Tables and views that processes of Millstream lock against each other; no other role may lock them.

CREATE TABLE millstream.locks (
    stream_table_id bigint PRIMARY KEY
);
COMMENT ON TABLE millstream.locks IS 'A row for each stream table: whoever has it locked fills, refreshes or drops that stream table';
INSERT INTO millstream.locks SELECT id FROM millstream.stream_tables;

-- Views, because a view has no rows: even if its lock is held for months, no vacuum waits.
CREATE VIEW millstream.lock_of_leader AS SELECT;
COMMENT ON VIEW millstream.lock_of_leader IS 'Locked by the one process that schedules refreshes';
CREATE VIEW millstream.lock_of_transitions AS SELECT;
COMMENT ON VIEW millstream.lock_of_transitions IS 'Locked by the one process that moves sources between triggers and WAL';
