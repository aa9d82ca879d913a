-- under --
-- The tables, views, functions and types that a view depends on, to any depth. The server's own are not in pg_depend.
-- For a table, only the types of the used columns are followed.
WITH RECURSIVE reached (classid, objid, subid) AS (
    SELECT 'pg_rewrite'::regclass::oid, oid, 0 FROM pg_rewrite WHERE ev_class = %(view)s
    UNION
    SELECT d.classid, d.objid, d.subid
    FROM reached AS r
    CROSS JOIN LATERAL (
        SELECT d.refclassid, d.refobjid, d.refobjsubid
        FROM pg_depend AS d
        WHERE d.classid = r.classid AND d.objid = r.objid AND d.deptype <> 'e'
            AND (r.classid <> 'pg_class'::regclass OR (r.subid > 0 AND d.objsubid = r.subid))
        UNION ALL
        SELECT 'pg_rewrite'::regclass, w.oid, 0
        FROM pg_rewrite AS w
        JOIN pg_class AS c ON c.oid = w.ev_class AND c.relkind = 'v'
        WHERE r.classid = 'pg_class'::regclass AND w.ev_class = r.objid
        UNION ALL
        -- The elements of a type, its base type and the functions of its range are dependencies; these are not.
        SELECT 'pg_type'::regclass, a.atttypid, 0
        FROM pg_type AS t
        JOIN pg_attribute AS a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE r.classid = 'pg_type'::regclass AND t.oid = r.objid
        UNION ALL
        SELECT 'pg_constraint'::regclass, k.oid, 0
        FROM pg_constraint AS k
        WHERE r.classid = 'pg_type'::regclass AND k.contypid = r.objid
    ) AS d (classid, objid, subid)
)
SELECT CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END, c.oid
FROM pg_class AS c
WHERE c.relkind IN ('r', 'p', 'v') AND c.oid <> %(view)s
    AND c.oid IN (SELECT objid FROM reached WHERE classid = 'pg_class'::regclass)
UNION ALL
SELECT 'function', p.oid FROM pg_proc AS p
WHERE p.oid IN (SELECT objid FROM reached WHERE classid = 'pg_proc'::regclass)
UNION ALL
SELECT 'type', t.oid FROM pg_type AS t
WHERE t.typcategory <> 'A' AND t.oid >= 16384
    AND t.oid IN (SELECT objid FROM reached WHERE classid = 'pg_type'::regclass);

-- changed --
-- Of what stream tables stand on, what is not as planned, or not as recorded with their rows. All of it at once.
--   table     what it is called                storage  the file it is in: a rewrite changes rows without an event
--   key       what tells its rows apart        view, function   how it is defined
--   type      what its values look like, and the casts that a query may mean      name   what a type is called
--   target    of a stream table: has it its name, our mark, and a unique index over these columns, or over what is made
--             of them?
--   shape     of a stream table: its columns, rules and children, and the file it is in: a rewrite is no write to a trigger
--   triggers  of a stream table: those that may change a row before it is written
-- Older catalogs have not recorded the last two.
SELECT p.stream_table_id, p.kind, p.objid, now.digest, now.digest IS DISTINCT FROM p.digest,
    p.kind NOT IN ('key', 'target', 'name') AND now.digest IS DISTINCT FROM was.digest
FROM unnest(%s::int8[], %s::text[], %s::oid[], %s::text[]) AS p (stream_table_id, kind, objid, digest)
LEFT JOIN millstream.definition_digests AS g
    ON g.stream_table_id = p.stream_table_id AND g.kind = p.kind AND g.objid = p.objid
CROSS JOIN LATERAL (SELECT CASE p.kind
    WHEN 'table' THEN (
        SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = p.objid
    )
    WHEN 'storage' THEN (SELECT c.relfilenode::text FROM pg_class AS c WHERE c.oid = p.objid)
    WHEN 'key' THEN concat(
        (
            SELECT string_agg(concat_ws(' ', i.indexrelid, i.indkey), ', ' ORDER BY i.indexrelid)
            FROM pg_index AS i
            WHERE i.indrelid = p.objid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
        ),
        ': ',
        (
            SELECT string_agg(a.attnum::text, ' ' ORDER BY a.attnum)
            FROM pg_attribute AS a
            WHERE a.attrelid = p.objid AND a.attnum > 0 AND a.attnotnull AND NOT a.attisdropped
                AND NOT EXISTS (
                    SELECT FROM pg_constraint AS o
                    WHERE o.conrelid = p.objid AND o.contype = 'n' AND NOT o.convalidated AND a.attnum = ANY (o.conkey)
                )
        )
    )
    WHEN 'view' THEN (
        SELECT md5(concat_ws(' ', c.relnamespace, c.relname, w.ev_action))
        FROM pg_class AS c JOIN pg_rewrite AS w ON w.ev_class = c.oid AND w.ev_type = '1'
        WHERE c.oid = p.objid
    )
    WHEN 'function' THEN (
        SELECT md5(concat_ws(' ', f.pronamespace, f.proname, f.prolang, f.prorettype, f.provolatile, f.proisstrict,
            f.proconfig, f.proargdefaults, f.prosrc, f.probin, f.prosqlbody,
            -- A new function of that name can change which one a call refers to.
            (SELECT string_agg(o.oid::text, ' ' ORDER BY o.oid) FROM pg_proc AS o
                WHERE o.proname = f.proname AND o.pronamespace = f.pronamespace)))
        FROM pg_proc AS f
        WHERE f.oid = p.objid
    )
    WHEN 'type' THEN (
        SELECT md5(concat_ws('/',
            (
                SELECT string_agg(quote_literal(e.enumlabel), ' ' ORDER BY e.enumsortorder)
                FROM pg_enum AS e
                WHERE e.enumtypid = t.oid
            ),
            (
                SELECT string_agg(concat_ws(' ', a.attnum, a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
                FROM pg_attribute AS a
                WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            ),
            (
                SELECT string_agg(concat_ws(' ', k.castsource, k.casttarget, k.castfunc, k.castcontext), ', ' ORDER BY k.oid)
                FROM pg_cast AS k
                WHERE t.oid IN (k.castsource, k.casttarget)
            )
        ))
        FROM pg_type AS t
        WHERE t.oid = p.objid
    )
    WHEN 'name' THEN (
        SELECT quote_ident(n.nspname) || '.' || quote_ident(t.typname)
        FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace
        WHERE t.oid = p.objid
    )
    WHEN 'target' THEN (
        SELECT 'dropped' WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = p.objid)
        UNION ALL
        SELECT 'renamed'
        FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        JOIN millstream.stream_tables AS s ON s.id = p.stream_table_id
        WHERE c.oid = p.objid AND (n.nspname, c.relname) <> (s.schema_name, s.name)
        UNION ALL
        -- The mark is described in `targets.py`.
        SELECT CASE WHEN EXISTS (
            SELECT FROM pg_index AS x
            JOIN pg_description AS d ON d.classoid = 'pg_class'::regclass AND d.objoid = x.indexrelid AND d.objsubid = 0
            WHERE x.indrelid = p.objid AND x.indisunique AND d.description = (
                SELECT format('Millstream: stream table %%s of installation %%s', p.stream_table_id, n.id)
                FROM millstream.installation AS n
            )
        ) THEN p.digest ELSE 'unmarked' END
        FROM pg_index AS i
        WHERE i.indrelid = p.objid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
            AND p.digest IN (array_to_string(ARRAY(
                SELECT coalesce(a.attname::text, '') COLLATE "C"
                FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
                LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                WHERE k.place <= i.indnkeyatts
                ORDER BY 1
            ), E'\n'), array_to_string(ARRAY(
                SELECT a.attname::text COLLATE "C"
                FROM pg_depend AS d
                JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
                WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refobjid = i.indrelid
                    AND i.indexprs IS NOT NULL AND i.indnatts = i.indnkeyatts
                ORDER BY 1
            ), E'\n'))
        LIMIT 1
    )
    WHEN 'shape' THEN (
        SELECT concat_ws(' ',
            c.relfilenode,
            (
                SELECT string_agg(concat_ws(':', a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod, a.attcollation,
                    a.attgenerated, a.attidentity), ' ' ORDER BY a.attnum)
                FROM pg_attribute AS a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            ),
            (SELECT string_agg('rule ' || w.oid, ' ' ORDER BY w.oid) FROM pg_rewrite AS w WHERE w.ev_class = c.oid),
            (SELECT string_agg('child ' || h.inhrelid, ' ' ORDER BY h.inhrelid) FROM pg_inherits AS h WHERE h.inhparent = c.oid)
        )
        FROM pg_class AS c
        WHERE c.oid = p.objid
    )
    WHEN 'triggers' THEN (
        SELECT coalesce(string_agg(quote_ident(t.tgname), ', ' ORDER BY t.tgname), '')
        FROM pg_trigger AS t
        WHERE t.tgrelid = p.objid AND t.tgtype & 3 = 3 AND t.tgenabled <> 'D' AND NOT t.tgisinternal
    )
END) AS now (digest)
CROSS JOIN LATERAL (SELECT CASE p.kind
    WHEN 'shape' THEN coalesce(g.digest, now.digest)
    WHEN 'triggers' THEN coalesce(g.digest, '')
    ELSE g.digest
END) AS was (digest)
WHERE now.digest IS DISTINCT FROM p.digest
    OR (p.kind NOT IN ('key', 'target', 'name') AND now.digest IS DISTINCT FROM was.digest);

-- recorded --
SELECT stream_table_id, kind, objid, digest FROM millstream.definition_digests WHERE stream_table_id = ANY (%s);

-- forget --
DELETE FROM millstream.definition_digests WHERE stream_table_id = %s;

-- record --
INSERT INTO millstream.definition_digests (stream_table_id, kind, objid, digest)
SELECT %s, kind, objid, digest FROM unnest(%s::text[], %s::oid[], %s::text[]) AS g (kind, objid, digest);

-- follow_names --
UPDATE millstream.definition_digests AS g
SET digest = quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE g.stream_table_id = %s AND g.kind = 'table' AND g.objid = c.oid AND c.oid = ANY (%s::oid[]);

-- record_target --
UPDATE millstream.definition_digests SET digest = %s WHERE stream_table_id = %s AND kind = %s AND objid = %s;
