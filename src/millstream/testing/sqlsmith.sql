-- tables --
-- What SQLsmith writes queries over: few rows, many types, NULL in every column that may have it.
CREATE TABLE t1 (id int PRIMARY KEY, a int, b text, c numeric, d boolean);
CREATE TABLE t2 (id int PRIMARY KEY, t1_id int, x double precision, y date, z bigint);
CREATE TABLE t3 (k text, v int, w timestamp);
CREATE TABLE t4 (p int, q text, r smallint, s real, PRIMARY KEY (p, q));

-- fill --
-- The rows that the tables have at first.
TRUNCATE t1, t2, t3, t4;
INSERT INTO t1 SELECT i, nullif(i % 5, 0), 'b' || i % 3, i * 1.5, i % 2 = 0 FROM generate_series(1, 20) AS i;
INSERT INTO t2 SELECT i, nullif(i % 7, 0), i / 4.0, date '2020-01-01' + i, i * 100 FROM generate_series(1, 20) AS i;
INSERT INTO t3 SELECT 'k' || i % 4, i, timestamp '2020-01-01' + i * interval '1 hour' FROM generate_series(1, 15) AS i;
INSERT INTO t4 SELECT i, 'q' || i % 2, i % 3, i / 8.0 FROM generate_series(1, 15) AS i;

-- backwards --
-- The same rows in the reverse order: a query whose result depends on it has no one right result.
CREATE SCHEMA backwards;
CREATE TABLE backwards.t1 (LIKE t1 INCLUDING ALL);
CREATE TABLE backwards.t2 (LIKE t2 INCLUDING ALL);
CREATE TABLE backwards.t3 (LIKE t3 INCLUDING ALL);
CREATE TABLE backwards.t4 (LIKE t4 INCLUDING ALL);
INSERT INTO backwards.t1 SELECT * FROM t1 ORDER BY id DESC;
INSERT INTO backwards.t2 SELECT * FROM t2 ORDER BY id DESC;
INSERT INTO backwards.t3 SELECT * FROM t3 ORDER BY v DESC;
INSERT INTO backwards.t4 SELECT * FROM t4 ORDER BY p DESC;

-- change_1 --
UPDATE t1 SET a = nullif(coalesce(a, 0) + 1, 3), b = nullif(b, 'b1'), d = NOT d WHERE id % 3 = 0;
UPDATE t2 SET x = x + 1, y = NULL WHERE id % 4 = 1;
DELETE FROM t3 WHERE v IN (3, 4);
INSERT INTO t3 VALUES ('k1', NULL, NULL), (NULL, 7, timestamp '2020-01-01 07:00'), ('k1', NULL, NULL);
UPDATE t4 SET s = NULL, r = r + 1 WHERE p < 6;

-- change_2 --
DELETE FROM t1 WHERE id < 6;
INSERT INTO t1 VALUES (2, 2, 'b9', 3.00, NULL), (30, NULL, NULL, NULL, true);
INSERT INTO t2 VALUES (31, 30, 0, date '2019-12-31', NULL), (32, 2, NULL, NULL, 100);
DELETE FROM t2 WHERE id % 6 = 0;
UPDATE t3 SET k = 'k' || v % 2, w = w + interval '1 day' WHERE v > 8;
DELETE FROM t4;

-- change_3 --
INSERT INTO t4 SELECT i, 'q' || i % 3, nullif(i % 2, 0), i / 2.0 FROM generate_series(1, 9) AS i;
UPDATE t1 SET c = -c;
DELETE FROM t2 WHERE z IS NULL OR z > 1200;

-- hide --
-- SQLsmith calls what it finds. Here it does not find functions that a stream table cannot have,
-- or that return no value of a type with a name. Only the server that it reads is changed.
UPDATE pg_catalog.pg_proc
SET prorettype = 'event_trigger'::regtype
WHERE prokind = 'f'
  AND proname !~ '(in|out|recv|send)$'
  AND proname !~ '^(version|current_|set_config|format|concat|pg_get|pg_table|pg_is|has_|array_|unnest|quote|shobj|obj_)'
  AND (
    provolatile <> 'i'
    OR prorettype IN ('void'::regtype, 'record'::regtype)
    OR prorettype::regtype::text LIKE 'any%'
    OR 'anyenum'::regtype = ANY (proargtypes)
    OR 'anyrange'::regtype = ANY (proargtypes)
    OR 'anymultirange'::regtype = ANY (proargtypes)
  );
