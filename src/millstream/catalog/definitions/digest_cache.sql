-- version_stamps --
-- A digest of the versions (ctid, xmin) of all catalog rows about each relation, function or type, and about roles. DDL
-- creates a new version of a row; statistics are updated in place and do not.
SELECT p.kind, p.objid, md5(CASE p.kind
    WHEN 'function' THEN (
        -- All functions of its name, since a call may come to refer to another one of them.
        SELECT concat(n.ctid, n.xmin, (
            SELECT string_agg(concat(o.ctid, o.xmin), ' ')
            FROM pg_proc AS o
            WHERE o.proname = f.proname AND o.pronamespace = f.pronamespace
        ))
        FROM pg_proc AS f JOIN pg_namespace AS n ON n.oid = f.pronamespace
        WHERE f.oid = p.objid
    )
    WHEN 'roles' THEN concat_ws('/',
        (SELECT string_agg(concat(m.ctid, m.xmin), ' ') FROM pg_auth_members AS m),
        (
            SELECT string_agg(concat_ws(' ', r.oid, r.rolsuper, r.rolbypassrls, r.rolinherit), ', ' ORDER BY r.oid)
            FROM pg_roles AS r
            WHERE r.rolsuper OR r.rolbypassrls OR NOT r.rolinherit
        ),
        (SELECT d.datdba FROM pg_database AS d WHERE d.datname = current_database())
    )
    WHEN 'type' THEN concat_ws('/',
        (
            SELECT concat(t.ctid, t.xmin, n.ctid, n.xmin)
            FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace
            WHERE t.oid = p.objid
        ),
        (SELECT string_agg(concat(e.ctid, e.xmin), ' ') FROM pg_enum AS e WHERE e.enumtypid = p.objid),
        (
            SELECT string_agg(concat(a.ctid, a.xmin), ' ')
            FROM pg_type AS t JOIN pg_attribute AS a ON a.attrelid = t.typrelid AND a.attnum > 0
            WHERE t.oid = p.objid
        ),
        (SELECT string_agg(concat(k.ctid, k.xmin), ' ') FROM pg_cast AS k WHERE p.objid IN (k.castsource, k.casttarget))
    )
    ELSE concat_ws('/',
        (
            SELECT concat(c.ctid, c.xmin, n.ctid, n.xmin)
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE c.oid = p.objid
        ),
        (SELECT string_agg(concat(a.ctid, a.xmin), ' ') FROM pg_attribute AS a WHERE a.attrelid = p.objid AND a.attnum > 0),
        (SELECT string_agg(concat(x.ctid, x.xmin), ' ') FROM pg_attrdef AS x WHERE x.adrelid = p.objid),
        (
            SELECT string_agg(concat(t.ctid, t.xmin, f.ctid, f.xmin), ' ')
            FROM pg_trigger AS t JOIN pg_proc AS f ON f.oid = t.tgfoid
            WHERE t.tgrelid = p.objid
        ),
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
