-- prints --
-- Of each relation, function or type: which versions of the catalog's rows tell about it. A row that DDL has touched
-- is a new version; statistics are written in place and make none.
SELECT p.kind, p.objid, md5(CASE p.kind
    WHEN 'function' THEN (SELECT concat(f.ctid, f.xmin) FROM pg_proc AS f WHERE f.oid = p.objid)
    WHEN 'type' THEN (SELECT string_agg(concat(e.ctid, e.xmin), ' ') FROM pg_enum AS e WHERE e.enumtypid = p.objid)
    ELSE concat_ws('/',
        (
            SELECT concat(c.ctid, c.xmin, n.ctid, n.xmin)
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE c.oid = p.objid
        ),
        (SELECT string_agg(concat(a.ctid, a.xmin), ' ') FROM pg_attribute AS a WHERE a.attrelid = p.objid AND a.attnum > 0),
        (SELECT string_agg(concat(x.ctid, x.xmin), ' ') FROM pg_attrdef AS x WHERE x.adrelid = p.objid),
        (SELECT string_agg(concat(t.ctid, t.xmin), ' ') FROM pg_trigger AS t WHERE t.tgrelid = p.objid),
        (SELECT string_agg(concat(i.ctid, i.xmin), ' ') FROM pg_index AS i WHERE i.indrelid = p.objid),
        (SELECT string_agg(concat(h.ctid, h.xmin), ' ') FROM pg_inherits AS h WHERE h.inhparent = p.objid),
        (SELECT string_agg(concat(h.ctid, h.xmin), ' ') FROM pg_inherits AS h WHERE h.inhrelid = p.objid),
        (SELECT string_agg(concat(w.ctid, w.xmin), ' ') FROM pg_rewrite AS w WHERE w.ev_class = p.objid),
        (
            SELECT string_agg(concat(r.ctid, r.xmin, b.ctid, b.xmin), ' ')
            FROM pg_publication_rel AS r JOIN pg_publication AS b ON b.oid = r.prpubid
            WHERE r.prrelid = p.objid
        ),
        (SELECT string_agg(s.srsubid::text, ' ') FROM pg_subscription_rel AS s WHERE s.srrelid = p.objid),
        (
            SELECT concat(b.ctid, b.xmin)
            FROM pg_class AS b
            WHERE b.relname = 'changes_' || p.objid AND b.relnamespace = 'millstream_changes'::regnamespace
        )
    )
END)
FROM unnest(%s::text[], %s::oid[]) AS p (kind, objid);
