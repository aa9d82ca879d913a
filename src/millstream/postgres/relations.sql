-- relation --
SELECT c.oid, n.nspname, c.relname, c.relkind::text
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = %s;

-- alterable --
SELECT c.oid, n.nspname, c.relname
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::oid[]) AND pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(n.oid, 'USAGE')
ORDER BY c.oid;

-- reachable --
SELECT c.oid, n.nspname, c.relname
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::oid[]) AND has_schema_privilege(n.oid, 'USAGE')
ORDER BY c.oid;

-- columns --
-- A NOT NULL constraint that is NOT VALID or NO INHERIT proves nothing about the existing rows.
SELECT a.attname, a.atttypid, a.atttypmod, a.attcollation,
    a.attnotnull
        AND (c.relkind = 'p' OR NOT EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhparent = c.oid))
        AND NOT EXISTS (
            SELECT FROM pg_constraint AS o
            WHERE o.conrelid = c.oid AND o.contype = 'n' AND NOT o.convalidated AND a.attnum = ANY (o.conkey)
        ),
    a.attnum
FROM pg_attribute AS a
JOIN pg_class AS c ON c.oid = a.attrelid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum;

-- key --
-- The given key, else the primary key, else the unique index of the fewest columns, if it identifies every row. INCLUDE
-- columns are not part of it. A table with children has no key, since an index covers only its own table. Uniqueness in
-- the index must imply uniqueness by `=`: with another collation, or another operator class, it need not.
SELECT array_agg(a.attname ORDER BY k.ordinality)
FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indrelid
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, ordinality)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
JOIN pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
WHERE i.indrelid = %(oid)s
    AND i.indisunique AND i.indisvalid AND i.indisready AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
    AND k.ordinality <= i.indnkeyatts
    AND (c.relkind = 'p' OR NOT EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhparent = c.oid))
GROUP BY i.indexrelid, i.indisprimary
HAVING bool_and(
    a.attnotnull
    AND NOT EXISTS (
        SELECT FROM pg_constraint AS o
        WHERE o.conrelid = i.indrelid AND o.contype = 'n' AND NOT o.convalidated AND a.attnum = ANY (o.conkey)
    )
    AND (coalesce(l.collisdeterministic, true) OR i.indcollation[(k.ordinality - 1)::int] = a.attcollation)
    AND NOT EXISTS (
        SELECT FROM pg_opclass AS d
        JOIN pg_am AS m ON m.oid = d.opcmethod AND m.amname = 'btree'
        WHERE d.opcdefault AND d.opcintype = coalesce(nullif(t.typbasetype, 0), t.oid)
            AND d.oid <> i.indclass[(k.ordinality - 1)::int]
    )
)
ORDER BY
    array_agg(a.attname::text ORDER BY k.ordinality) = %(wanted)s::text[] DESC,
    i.indisprimary DESC, count(*), i.indexrelid
LIMIT 1;

-- partitions --
-- Partitions and children of each table, to any depth. One that is being detached no longer counts;
-- a temporary child exists for its own session only.
WITH RECURSIVE tree (root, member) AS (
    SELECT root, root FROM unnest(%s::oid[]) AS root
    UNION
    SELECT t.root, h.inhrelid
    FROM tree AS t
    JOIN pg_inherits AS h ON h.inhparent = t.member
    JOIN pg_class AS c ON c.oid = h.inhrelid
    WHERE NOT h.inhdetachpending AND c.relpersistence <> 't'
)
SELECT root, array_agg(member ORDER BY member) FROM tree WHERE member <> root GROUP BY root;

-- facts --
-- Facts that decide whether changes of each of these tables can be captured, and by this role.
SELECT
    c.oid, n.nspname, c.relname,
    c.relkind::text, c.relpersistence::text,
    c.oid < 16384 OR n.nspname IN ('pg_catalog', 'information_schema', 'pg_toast') AS is_system,
    n.nspname IN ('millstream', 'millstream_changes', 'millstream_state') AS is_ours,
    row_security_active(c.oid) AS hides_rows,
    pg_has_role(c.relowner, 'USAGE') AS is_owned,
    has_table_privilege(c.oid, 'SELECT') AS is_readable,
    current_user::text, pg_get_userbyid(c.relowner)
FROM unnest(%s::oid[]) WITH ORDINALITY AS asked (oid, ordinality)
JOIN pg_class AS c ON c.oid = asked.oid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
ORDER BY asked.ordinality;

-- from_outside --
-- The server's own operators compare arrays, enums, ranges and composites, for any elements, but not domains over them.
WITH RECURSIVE unwrapped AS (
    SELECT t.oid, t.typtype, t.typbasetype, t.typnamespace, t.typcategory
    FROM pg_type AS t
    WHERE t.oid = ANY (%(oids)s::oid[])
    UNION
    SELECT t.oid, t.typtype, t.typbasetype, t.typnamespace, t.typcategory
    FROM unwrapped AS u
    JOIN pg_type AS t ON t.oid = u.typbasetype
)
SELECT EXISTS (
    SELECT FROM unwrapped
    WHERE (typtype = 'b' AND typcategory <> 'A' AND typnamespace <> 'pg_catalog'::regnamespace)
        OR (typtype IN ('e', 'r', 'm', 'c') AND oid <> ALL (%(oids)s::oid[]))
);

-- types --
-- Each declared type, and the base type under its domains. A value is comparable if all its parts are: elements of
-- arrays, attributes of composites. The equality is that of GROUP BY.
WITH RECURSIVE asked AS (
    SELECT ordinality AS place, oid, typmod, collated
    FROM unnest(%s::oid[], %s::int4[], %s::oid[]) WITH ORDINALITY AS asked (oid, typmod, collated, ordinality)
), unwrapped AS (
    SELECT place, oid AS type, typmod, 0 AS depth FROM asked
    UNION ALL
    SELECT u.place, t.typbasetype, t.typtypmod, u.depth + 1
    FROM unwrapped AS u
    JOIN pg_type AS t ON t.oid = u.type
    WHERE t.typtype = 'd'
), bases AS (
    SELECT DISTINCT ON (place) place, type, typmod FROM unwrapped ORDER BY place, depth DESC
), named AS NOT MATERIALIZED (
    SELECT t.oid, t.typname, t.typtype, t.typnamespace, t.typcollation, t.typrelid, t.typbasetype, t.typoutput,
        CASE
            WHEN t.typsubscript = 'array_subscript_handler'::regproc AND t.typstorage <> 'p' THEN t.typelem
            ELSE 0
        END AS element
    FROM pg_type AS t
), printed AS (
    SELECT u.type, u.typmod,
        CASE
            WHEN coalesce(e.typnamespace, t.typnamespace) = 'pg_catalog'::regnamespace THEN format_type(u.type, u.typmod)
            ELSE quote_ident(n.nspname) || '.' || quote_ident(coalesce(e.typname, t.typname))
                || substr(format_type(coalesce(e.oid, t.oid), u.typmod), length(format_type(coalesce(e.oid, t.oid), NULL)) + 1)
                || CASE WHEN e.oid IS NULL THEN '' ELSE '[]' END
        END AS name
    FROM (SELECT oid AS type, typmod FROM asked UNION SELECT type, typmod FROM bases) AS u
    JOIN named AS t ON t.oid = u.type
    LEFT JOIN named AS e ON e.oid = t.element
    JOIN pg_namespace AS n ON n.oid = coalesce(e.typnamespace, t.typnamespace)
), parts AS (
    SELECT place, type FROM bases
    UNION
    SELECT p.place, i.type
    FROM parts AS p
    JOIN named AS t ON t.oid = p.type
    CROSS JOIN LATERAL (
        SELECT t.element WHERE t.element <> 0
        UNION ALL
        SELECT t.typbasetype WHERE t.typtype = 'd'
        UNION ALL
        SELECT a.atttypid FROM pg_attribute AS a
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS i (type)
), incomparable AS (
    SELECT p.place
    FROM parts AS p
    JOIN named AS t ON t.oid = p.type
    WHERE t.element = 0 AND t.typtype NOT IN ('d', 'c', 'e', 'r', 'm')
        AND NOT EXISTS (
            SELECT FROM (
                SELECT t.oid
                UNION ALL
                SELECT k.casttarget FROM pg_cast AS k
                WHERE k.castsource = t.oid AND k.castmethod = 'b' AND k.castcontext = 'i'
            ) AS same (type)
            JOIN pg_opclass AS o ON o.opcintype = same.type
            JOIN pg_am AS m ON m.oid = o.opcmethod
            WHERE o.opcdefault AND m.amname IN ('btree', 'hash')
        )
)
SELECT
    q.oid,
    dn.name,
    t.typname AS base,
    CASE
        WHEN t.element <> 0 THEN 'array'
        WHEN t.typtype = 'e' THEN 'enum'
        WHEN t.typtype = 'c' THEN 'composite'
        WHEN t.typtype IN ('r', 'm') THEN 'range'
        WHEN t.typtype = 'p' THEN 'pseudo'
        ELSE 'base'
    END AS kind,
    b.typmod,
    e.typname AS element,
    CASE
        WHEN c.oid IS NULL THEN 'none'
        WHEN NOT c.collisdeterministic THEN 'nondeterministic'
        -- The builtin provider compares bytes for every locale.
        WHEN c.collprovider = 'b' OR (c.collprovider = 'c' AND c.collcollate IN ('C', 'POSIX')) THEN 'C'
        WHEN c.collprovider = 'd' AND (
            s.datlocprovider = 'b' OR (s.datlocprovider = 'c' AND s.datcollate IN ('C', 'POSIX'))
        ) THEN 'C'
        ELSE 'deterministic'
    END AS collated,
    NOT EXISTS (SELECT FROM incomparable AS i WHERE i.place = q.place) AS comparable,
    CASE WHEN q.oid = b.type THEN '' ELSE bn.name END AS underlying,
    -- The server's own types, in any schema, have oids below this one.
    CASE
        WHEN b.type < 16384 THEN ''
        ELSE (
            SELECT quote_ident(n.nspname) || '.' || quote_ident(f.proname)
            FROM pg_proc AS f
            JOIN pg_namespace AS n ON n.oid = f.pronamespace
            WHERE f.oid = t.typoutput
        )
    END AS output,
    CASE
        WHEN t.element <> 0 OR t.typtype = 'c' THEN ARRAY(
            SELECT DISTINCT CASE WHEN i.typtype = 'e' THEN 'enum' ELSE i.typname::text END
            FROM parts AS p
            JOIN named AS i ON i.oid = p.type
            WHERE p.place = q.place AND i.element = 0 AND i.typtype NOT IN ('c', 'd')
            UNION
            SELECT 'nondeterministic'
            FROM parts AS p
            JOIN named AS i ON i.oid = p.type AND i.typtype = 'c'
            JOIN pg_attribute AS a ON a.attrelid = i.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            JOIN pg_collation AS n ON n.oid = a.attcollation AND NOT n.collisdeterministic
            WHERE p.place = q.place
            ORDER BY 1
        )
        ELSE '{}'
    END AS parts
FROM asked AS q
JOIN bases AS b ON b.place = q.place
JOIN named AS d ON d.oid = q.oid
JOIN printed AS dn ON (dn.type, dn.typmod) = (q.oid, q.typmod)
JOIN printed AS bn ON (bn.type, bn.typmod) = (b.type, b.typmod)
JOIN named AS t ON t.oid = b.type
LEFT JOIN named AS e ON e.oid = t.element
LEFT JOIN pg_collation AS c ON c.oid = coalesce(nullif(q.collated, 0), nullif(d.typcollation, 0))
CROSS JOIN (SELECT datlocprovider, datcollate FROM pg_database WHERE datname = current_database()) AS s
ORDER BY q.place;
