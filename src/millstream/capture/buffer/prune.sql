-- claim --
-- No reader can be added while this lock is held. If one is being added, or another session prunes, return no row.
SELECT relid FROM millstream.sources WHERE relid = %s FOR UPDATE SKIP LOCKED;

-- buffer --
SELECT to_regclass(%s);
