
#variable_conflict use_column
DECLARE
    intact boolean;
BEGIN
    IF to_regclass('millstream_changes.changes_42') IS NULL THEN
        RETURN NULL;
    ELSIF TG_OP = 'TRUNCATE' THEN
        INSERT INTO "millstream_changes"."changes_42" (xid, action) VALUES (pg_current_xact_id(), 'T');
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        intact := millstream_changes.columns_stood('42'::regclass, ARRAY[1, 4, 3]::int2[], ARRAY['id', 'Total', 'price']::name[], ARRAY[23, 1700, 1700]::oid[], ARRAY[ -1, 786438, 786438]::int4[], ARRAY[0, 0, 0]::oid[]);
    ELSIF EXISTS (SELECT FROM unnest(ARRAY[1, 4, 3]::int4[], ARRAY['id', 'Total', 'price']::text[]) AS w (attnum, attname) WHERE (pg_identify_object_as_address(1259, 42, w.attnum)).object_names[3] IS DISTINCT FROM w.attname) THEN
        intact := false;
    ELSIF TG_OP = 'DELETE' THEN
        intact := coalesce((SELECT true AND pg_typeof("r"."id")::oid = 23 AND pg_typeof("r"."Total")::oid = 1700 AND pg_typeof("r"."price")::oid = 1700 FROM old_rows AS r LIMIT 1), true);
    ELSE
        intact := coalesce((SELECT true AND pg_typeof("r"."id")::oid = 23 AND pg_typeof("r"."Total")::oid = 1700 AND pg_typeof("r"."price")::oid = 1700 FROM new_rows AS r LIMIT 1), true);
    END IF;
    IF NOT intact THEN
        INSERT INTO "millstream_changes"."changes_42" (xid, action) VALUES (pg_current_xact_id(), 'X');
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO "millstream_changes"."changes_42" (xid, action, "c1", "c4") SELECT pg_current_xact_id(), 'I', "r"."id", "r"."Total" FROM new_rows AS r;
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO "millstream_changes"."changes_42" (xid, action, "c1", "c4")
        SELECT pg_current_xact_id(), i.action, "i"."c1", "i"."c4"
        FROM (SELECT p.*, ROW("p"."c1", "p"."c4") AS image FROM (SELECT row_number() OVER () AS pair, "r"."id" AS "c1", "r"."Total" AS "c4" FROM old_rows AS r) AS p) AS went
        FULL JOIN (SELECT p.*, ROW("p"."c1", "p"."c4") AS image FROM (SELECT row_number() OVER () AS pair, "r"."id" AS "c1", "r"."Total" AS "c4" FROM new_rows AS r) AS p) AS came ON came.pair = went.pair
        CROSS JOIN LATERAL (VALUES (went.pair, 'D'::"char", "went"."c1", "went"."c4"), (came.pair, 'I', "came"."c1", "came"."c4")) AS i (pair, action, "c1", "c4")
        WHERE i.pair IS NOT NULL
            AND (went.pair IS NULL OR came.pair IS NULL OR NOT went.image OPERATOR(pg_catalog.*=) came.image);
    ELSE
        INSERT INTO "millstream_changes"."changes_42" (xid, action, "c1", "c4") SELECT pg_current_xact_id(), 'D', "r"."id", "r"."Total" FROM old_rows AS r;
    END IF;
    RETURN NULL;
END
