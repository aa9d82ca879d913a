-- put --
INSERT INTO millstream.slots
    (name, publication, publication_oid, database_oid, system_identifier, timeline, created_lsn, cursor)
VALUES
    (%(name)s, %(publication)s, %(publication_oid)s, %(database_oid)s, %(system_identifier)s, %(timeline)s,
    %(created_lsn)s::pg_lsn, %(cursor)s::pg_lsn);

-- get --
SELECT name, publication, publication_oid, database_oid, system_identifier, timeline, created_lsn::text, cursor::text
FROM millstream.slots WHERE name = %s;

-- remove --
DELETE FROM millstream.slots WHERE name = %s;

-- claim --
-- Waits for a running transaction of another process that stores rows, and prevents its next one.
UPDATE millstream.slots SET epoch = epoch + 1, owner = %(owner)s
WHERE name = %(name)s AND (%(take_over)s OR owner = %(owner)s)
RETURNING epoch;

-- advance --
-- Returns the next transaction id, by which 32-bit ids from WAL are extended to 64 bits. The other positions of the
-- reader are written with the cursor, and never without it.
UPDATE millstream.slots
SET cursor = greatest(cursor, %(cursor)s::pg_lsn),
    received = greatest(received, %(received)s::pg_lsn),
    markers = markers + %(markers)s,
    heartbeat_at = CASE
        WHEN %(heartbeat)s::pg_lsn BETWEEN '0/1' AND %(cursor)s::pg_lsn THEN greatest(heartbeat_at, now() - %(heartbeat_age)s)
        ELSE heartbeat_at
    END,
    updated_at = now()
WHERE name = %(name)s AND epoch = %(epoch)s
RETURNING pg_snapshot_xmax(pg_current_snapshot())::text::int8;

-- note_interruption --
UPDATE millstream.slots
SET reconnects = reconnects + %(count)s, interrupted_at = clock_timestamp() - %(ago)s, interrupted_by = %(reason)s
WHERE name = %(name)s AND epoch = %(epoch)s;

-- watermarks --
SELECT source_relid, commit_lsn::text, ordinal FROM millstream.watermarks WHERE slot = %s;

-- put_watermarks --
INSERT INTO millstream.watermarks (slot, source_relid, commit_lsn, ordinal)
SELECT %s, relid, commit_lsn, ordinal FROM unnest(%s::oid[], %s::pg_lsn[], %s::int8[]) AS w (relid, commit_lsn, ordinal)
ON CONFLICT (slot, source_relid) DO UPDATE SET commit_lsn = excluded.commit_lsn, ordinal = excluded.ordinal;

-- end_sender --
SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active;

-- drop_slot --
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s;
