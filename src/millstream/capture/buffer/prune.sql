-- claim --
-- No reader can be added while we hold this; where one is being added now, or another session prunes, give way.
SELECT relid FROM millstream.sources WHERE relid = %s FOR UPDATE SKIP LOCKED;

-- buffer --
SELECT to_regclass(%s);
