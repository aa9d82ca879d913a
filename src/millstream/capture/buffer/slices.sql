-- create --
-- A queue: rows are inserted at the end and deleted from the start, never updated. Vacuum early and without pause, so
-- that it remains as small as the waiting rows. The second index has only the rows that a count must not miss.
CREATE TABLE IF NOT EXISTS {buffer} (
    id bigint GENERATED ALWAYS AS IDENTITY (CACHE 100),
    xid xid8 NOT NULL,
    action "char" NOT NULL,
    origin "char" NOT NULL DEFAULT 't'
) WITH (
    fillfactor = 100,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 5000,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX IF NOT EXISTS {index} ON {buffer} (xid);
CREATE INDEX IF NOT EXISTS {marks} ON {buffer} (xid) WHERE action IN ('T', 'X');

-- lacking --
-- The columns that are missing in a buffer, or have another type or collation there.
SELECT w.attnum, w.type_name, n.nspname, l.collname, b.attnum IS NOT NULL
FROM unnest(%s::int2[], %s::text[], %s::oid[]) AS w (attnum, type_name, collated)
LEFT JOIN pg_collation AS l ON l.oid = w.collated
LEFT JOIN pg_namespace AS n ON n.oid = l.collnamespace
LEFT JOIN pg_attribute AS b ON b.attrelid = %s::regclass AND b.attname = 'c' || w.attnum AND NOT b.attisdropped
WHERE b.attnum IS NULL OR format_type(b.atttypid, b.atttypmod) <> w.type_name OR b.attcollation <> w.collated
ORDER BY w.attnum;
