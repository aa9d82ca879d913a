-- wrong --
-- What is wrong with the guards of these tables; no row for a guard that is unchanged.
SELECT o.relid, CASE
    WHEN t.oid IS NULL THEN 'absent'
    WHEN t.tgenabled = 'D' THEN 'disabled'
    WHEN t.tgenabled <> 'A' THEN 'not enabled always'
    ELSE 'of another kind'
END
FROM unnest(%s::oid[]) AS o (relid)
LEFT JOIN pg_trigger AS t ON t.tgrelid = o.relid AND t.tgname = 'millstream_guard' AND NOT t.tgisinternal
WHERE NOT coalesce(
    t.tgenabled = 'A' AND t.tgfoid = 'millstream_changes.guard'::regproc AND t.tgtype = 62 AND t.tgqual IS NULL
        AND t.tgattr::text = '',
    false
);

-- triggers --
SELECT tgname FROM pg_trigger
WHERE tgrelid = %s AND NOT tgisinternal AND (tgname = %s OR tgfoid = 'millstream_changes.guard'::regproc);

-- left --
-- Guards on tables that are not, or no longer, stream tables, and that the role may alter.
SELECT c.oid, n.nspname, c.relname
FROM pg_trigger AS t
JOIN pg_class AS c ON c.oid = t.tgrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE t.tgfoid = 'millstream_changes.guard'::regproc AND NOT t.tgisinternal
    AND pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(n.oid, 'USAGE')
    AND NOT EXISTS (SELECT FROM millstream.stream_tables AS s WHERE s.relid = c.oid);

-- new_secret --
UPDATE millstream.guard_secret SET secret = gen_random_uuid();

-- record --
UPDATE millstream.stream_tables SET is_guarded = %s WHERE id = %s;
