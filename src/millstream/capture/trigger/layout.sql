-- trees --
-- For each source: its tables, and whether they can be written without firing their statement triggers, because a table
-- has a parent outside the source or is the target of a subscription.
WITH trees AS (
    SELECT root, member FROM unnest(%s::oid[], %s::oid[]) AS t (root, member)
)
SELECT
    t.root,
    bool_or(
        EXISTS (SELECT FROM pg_subscription_rel AS s WHERE s.srrelid = t.member)
        OR EXISTS (
            SELECT FROM pg_inherits AS h
            WHERE h.inhrelid = t.member
                AND h.inhparent NOT IN (SELECT o.member FROM trees AS o WHERE o.root = t.root)
        )
    ),
    array_agg(c.oid ORDER BY t.member <> t.root, c.oid),
    array_agg(n.nspname::text ORDER BY t.member <> t.root, c.oid),
    array_agg(c.relname::text ORDER BY t.member <> t.root, c.oid),
    array_agg(c.relkind::text ORDER BY t.member <> t.root, c.oid)
FROM trees AS t
JOIN pg_class AS c ON c.oid = t.member
JOIN pg_namespace AS n ON n.oid = c.relnamespace
GROUP BY t.root
HAVING bool_or(t.member = t.root);

-- triggers --
-- The triggers on any table that call a capture function of one of these sources.
SELECT s.relid, c.oid, n.nspname, c.relname, t.tgname, p.proname, t.tgenabled::text, (t.tgtype & 1) = 1, t.tgtype & 60
FROM pg_proc AS p
JOIN unnest(%s::oid[]) AS s (relid) ON split_part(p.proname, '_', 2) = s.relid::text
JOIN pg_trigger AS t ON t.tgfoid = p.oid AND NOT t.tgisinternal
JOIN pg_class AS c ON c.oid = t.tgrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'millstream_changes') AND p.proname LIKE 'capture%%'
ORDER BY s.relid, c.oid, t.tgname;

-- functions --
-- The capture functions of a source: its own, and those of its partitions.
SELECT p.proname, CASE WHEN p.prosecdef AND p.proconfig = ARRAY['search_path=pg_catalog, pg_temp'] THEN p.prosrc END
FROM pg_proc AS p
WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'millstream_changes')
    AND p.proname LIKE 'capture%%' AND split_part(p.proname, '_', 2) = %s::text
ORDER BY p.proname;

-- buffers --
-- The sources among these that have a buffer.
SELECT s.relid FROM unnest(%s::oid[]) AS s (relid) WHERE to_regclass('millstream_changes.changes_' || s.relid) IS NOT NULL;
