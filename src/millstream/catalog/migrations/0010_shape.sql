-- Properties of a stream table's own table that users may alter: its columns, rules and children, and triggers that
-- change rows.

ALTER TABLE millstream.grounds DROP CONSTRAINT grounds_kind_check;
ALTER TABLE millstream.grounds ADD CONSTRAINT grounds_kind_check
    CHECK (kind IN ('table', 'storage', 'view', 'function', 'type', 'shape', 'triggers'));
