-- links --
-- The relations and functions that a view reads, to any depth, as links between pairs (catalog, oid). Views and
-- materialized views lead to what their queries use, functions written BEGIN ATOMIC to what their bodies use, operators
-- to their functions, tables to their partitions and children. Types are not followed: a row type reads no rows.
WITH RECURSIVE link (reader_class, reader, read_class, read) AS (
    SELECT NULL::oid, NULL::oid, 'pg_class'::regclass::oid, %(view)s::oid
    UNION
    SELECT l.read_class, l.read, n.classid, n.objid
    FROM link AS l
    CROSS JOIN LATERAL (
        SELECT d.refclassid, d.refobjid
        FROM pg_rewrite AS w
        JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
        WHERE l.read_class = 'pg_class'::regclass AND w.ev_class = l.read AND w.ev_type = '1' AND d.deptype <> 'e'
            AND (d.refclassid, d.refobjid) <> (l.read_class, l.read)
        UNION ALL
        SELECT l.read_class, h.inhrelid
        FROM pg_inherits AS h
        WHERE l.read_class = 'pg_class'::regclass AND h.inhparent = l.read
        UNION ALL
        SELECT d.refclassid, d.refobjid
        FROM pg_depend AS d
        WHERE l.read_class <> 'pg_class'::regclass AND d.classid = l.read_class AND d.objid = l.read AND d.deptype <> 'e'
    ) AS n (classid, objid)
    WHERE n.classid IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_operator'::regclass)
)
SELECT reader_class, reader, read_class, read FROM link WHERE reader IS NOT NULL;

-- names --
-- The description of a relation or function in messages: its kind, unless it is a table, and its qualified name.
SELECT o.classid, o.objid, CASE o.classid
    WHEN 'pg_class'::regclass THEN (
        SELECT concat(
            CASE c.relkind WHEN 'v' THEN 'view ' WHEN 'm' THEN 'materialized view ' ELSE 'table ' END, n.nspname, '.', c.relname
        )
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = o.objid
    )
    ELSE pg_describe_object(o.classid, o.objid, 0)
END
FROM unnest(%s::oid[], %s::oid[]) AS o (classid, objid);
