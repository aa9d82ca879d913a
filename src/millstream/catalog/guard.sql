-- wrong --
-- What is wrong with the guards of these tables; no row for one that is as it was made.
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

-- record --
UPDATE millstream.stream_tables SET is_guarded = %s WHERE id = %s;
