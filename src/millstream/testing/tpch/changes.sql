-- functions --
-- The source of randomness: the same arguments give the same number, on every server and in every order.
CREATE OR REPLACE FUNCTION dice(sides int8, VARIADIC throw int8[]) RETURNS int8 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN mod(hash_array_extended(throw, 0) & 9223372036854775807, sides);

CREATE OR REPLACE FUNCTION one_of(choices text[], VARIADIC throw int8[]) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN choices[1 + dice(cardinality(choices), VARIADIC throw)];

-- The specification uses the first 8 of every 32 order keys; new orders take the next 8.
CREATE OR REPLACE FUNCTION order_key(number int8, turn int8) RETURNS int8 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ((((number >> 3) << 2) | turn) << 3) | (number & 7);

-- Every second time a nation that queries filter by: Brazil, Canada, France, Germany, Saudi Arabia.
CREATE OR REPLACE FUNCTION some_nation(VARIADIC throw int8[]) RETURNS integer LANGUAGE sql STABLE
RETURN CASE dice(2, VARIADIC throw || 1::int8)
    WHEN 0 THEN one_of('{2,3,6,7,20}', VARIADIC throw)::int
    ELSE (
        SELECT n_nationkey FROM nation
        WHERE n_nationkey >= dice(1 + (SELECT max(n_nationkey) FROM nation), VARIADIC throw)
        ORDER BY n_nationkey LIMIT 1
    )
END;

CREATE OR REPLACE FUNCTION some_region(VARIADIC throw int8[]) RETURNS integer LANGUAGE sql STABLE
RETURN (
    SELECT r_regionkey FROM region
    WHERE r_regionkey >= dice(1 + (SELECT max(r_regionkey) FROM region), VARIADIC throw)
    ORDER BY r_regionkey LIMIT 1
);

CREATE OR REPLACE FUNCTION some_customer(VARIADIC throw int8[]) RETURNS integer LANGUAGE sql STABLE
RETURN (
    SELECT c_custkey FROM customer
    WHERE c_custkey >= 1 + dice((SELECT max(c_custkey) FROM customer), VARIADIC throw)
    ORDER BY c_custkey LIMIT 1
);

CREATE OR REPLACE FUNCTION some_supplier(VARIADIC throw int8[]) RETURNS integer LANGUAGE sql STABLE
RETURN (
    SELECT s_suppkey FROM supplier
    WHERE s_suppkey >= 1 + dice((SELECT max(s_suppkey) FROM supplier), VARIADIC throw)
    ORDER BY s_suppkey LIMIT 1
);

CREATE OR REPLACE FUNCTION some_part(VARIADIC throw int8[]) RETURNS integer LANGUAGE sql STABLE
RETURN (
    SELECT p_partkey FROM part
    WHERE p_partkey >= 1 + dice((SELECT max(p_partkey) FROM part), VARIADIC throw)
    ORDER BY p_partkey LIMIT 1
);

-- Only the first 8 of every 32 keys are drawn; if one does not exist, the next one that does.
CREATE OR REPLACE FUNCTION some_order(VARIADIC throw int8[]) RETURNS int8 LANGUAGE sql STABLE
RETURN (
    SELECT o_orderkey FROM orders
    WHERE o_orderkey >= dice((SELECT max(o_orderkey) FROM orders), VARIADIC throw) & ~24::int8
    ORDER BY o_orderkey LIMIT 1
);

-- A line of the order, if it has any.
CREATE OR REPLACE FUNCTION some_line(orderkey int8, VARIADIC throw int8[]) RETURNS integer LANGUAGE sql STABLE
RETURN (
    SELECT l_linenumber FROM lineitem WHERE l_orderkey = orderkey
    ORDER BY dice(1000, VARIADIC throw || l_linenumber::int8), l_linenumber LIMIT 1
);

-- Lines of an order, as the specification fills them.
CREATE OR REPLACE FUNCTION new_lines(orderkey int8, orderdate date, first int8, last int8, seed int8)
RETURNS SETOF lineitem LANGUAGE sql STABLE AS $$
    SELECT
        orderkey, ps.ps_partkey, ps.ps_suppkey, line::int,
        made.quantity, round(made.quantity * p_retailprice, 2),
        dice(11, seed, orderkey, line, 4) / 100.0, dice(9, seed, orderkey, line, 5) / 100.0,
        CASE WHEN made.received > DATE '1995-06-17' THEN 'N' ELSE one_of('{R,A}', seed, orderkey, line, 6) END,
        CASE WHEN made.shipped > DATE '1995-06-17' THEN 'O' ELSE 'F' END,
        made.shipped, made.committed, made.received,
        one_of('{DELIVER IN PERSON,COLLECT COD,NONE,TAKE BACK RETURN}', seed, orderkey, line, 7),
        one_of('{REG AIR,AIR,RAIL,SHIP,TRUCK,MAIL,FOB}', seed, orderkey, line, 8),
        'new line ' || line
    FROM generate_series(first, last) AS line
    CROSS JOIN LATERAL (
        SELECT 1 + dice(50, seed, orderkey, line, 1) AS quantity,
            orderdate + 1 + dice(121, seed, orderkey, line, 2)::int AS shipped,
            orderdate + 30 + dice(61, seed, orderkey, line, 3)::int AS committed,
            orderdate + 2 + dice(121, seed, orderkey, line, 2)::int + dice(30, seed, orderkey, line, 9)::int AS received
    ) AS made
    CROSS JOIN LATERAL (
        SELECT ps_partkey, ps_suppkey FROM partsupp
        WHERE ps_partkey = some_part(seed, orderkey, line, 10)
        ORDER BY dice(1000, seed, orderkey, line, ps_suppkey), ps_suppkey LIMIT 1
    ) AS ps
    JOIN part ON p_partkey = ps.ps_partkey
$$;

-- rf1 --
-- New orders with their lines. One customer in three never orders.
WITH fresh AS MATERIALIZED (
    SELECT
        order_key(number, 1) AS key,
        DATE '1992-01-01' + dice(2406, %(seed)s, number, 1)::int AS day,
        1 + dice(7, %(seed)s, number, 2) AS lines,
        some_customer(%(seed)s, number, 3) AS customer
    FROM generate_series(%(first)s::int8, %(last)s::int8) AS number
), lines AS MATERIALIZED (
    SELECT line.* FROM fresh CROSS JOIN LATERAL new_lines(key, day, 1, lines, %(seed)s) AS line
), totals AS (
    SELECT
        l_orderkey,
        round(sum(l_extendedprice * (1 + l_tax) * (1 - l_discount)), 2) AS price,
        CASE WHEN bool_and(l_linestatus = 'F') THEN 'F' WHEN bool_and(l_linestatus = 'O') THEN 'O' ELSE 'P' END AS status
    FROM lines GROUP BY l_orderkey
), placed AS (
    INSERT INTO orders
    SELECT
        key, customer - CASE WHEN mod(customer, 3) = 0 AND EXISTS (
            SELECT FROM customer AS before WHERE before.c_custkey = customer - 1
        ) THEN 1 ELSE 0 END,
        coalesce(status, 'O'), coalesce(price, 0), day,
        one_of('{1-URGENT,2-HIGH,3-MEDIUM,4-NOT SPECIFIED,5-LOW}', %(seed)s, key, 4),
        'Clerk#' || lpad((1 + dice(1000, %(seed)s, key, 5))::text, 9, '0'), 0,
        one_of('{quietly special deposits and requests,furiously even ideas,slyly regular requests}', %(seed)s, key, 6)
    FROM fresh LEFT JOIN totals ON l_orderkey = key
)
INSERT INTO lineitem TABLE lines;

-- rf2 --
-- Old orders are deleted, with their lines.
WITH old AS MATERIALIZED (
    SELECT order_key(number, 0) AS key FROM generate_series(%(first)s::int8, %(last)s::int8) AS number
), lines AS (
    DELETE FROM lineitem WHERE l_orderkey IN (SELECT key FROM old)
)
DELETE FROM orders WHERE o_orderkey IN (SELECT key FROM old);

-- update_lineitem --
UPDATE lineitem SET
    l_quantity = 1 + dice(50, %(seed)s, l_orderkey, 1),
    l_extendedprice = round(l_extendedprice / l_quantity * (1 + dice(50, %(seed)s, l_orderkey, 1)), 2),
    l_discount = dice(11, %(seed)s, l_orderkey, 2) / 100.0,
    l_tax = dice(9, %(seed)s, l_orderkey, 3) / 100.0,
    l_returnflag = one_of('{R,A,N}', %(seed)s, l_orderkey, 4),
    l_linestatus = one_of('{F,O}', %(seed)s, l_orderkey, 5),
    l_shipdate = ship.day,
    l_commitdate = ship.day - 30 + dice(90, %(seed)s, l_orderkey, 6)::int,
    l_receiptdate = ship.day + 1 + dice(30, %(seed)s, l_orderkey, 7)::int,
    l_shipinstruct = one_of('{DELIVER IN PERSON,COLLECT COD,NONE}', %(seed)s, l_orderkey, 8),
    l_shipmode = one_of('{AIR,MAIL,SHIP,TRUCK,AIR}', %(seed)s, l_orderkey, 9)
FROM (
    SELECT DISTINCT key, some_line(key, %(seed)s, key) AS line,
        DATE '1992-01-02' + dice(2520, %(seed)s, key, 10)::int AS day
    FROM (SELECT some_order(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number) AS drawn
) AS ship
WHERE l_orderkey = ship.key AND l_linenumber = ship.line;

-- move_lineitem --
-- To another part, from another supplier.
UPDATE lineitem SET l_partkey = moved.ps_partkey, l_suppkey = moved.ps_suppkey
FROM (
    SELECT DISTINCT ON (key) key, some_line(key, %(seed)s, key) AS line, ps_partkey, ps_suppkey
    FROM (
        SELECT some_order(%(seed)s, number) AS key, some_part(%(seed)s, number, 1) AS part
        FROM generate_series(1, %(rows)s) AS number
    ) AS drawn JOIN partsupp ON ps_partkey = part
    ORDER BY key, dice(1000, %(seed)s, ps_partkey, ps_suppkey), ps_suppkey
) AS moved
WHERE l_orderkey = moved.key AND l_linenumber = moved.line;

-- fill_lineitem --
-- Large orders: query 18 filters by more than 300 pieces.
UPDATE lineitem SET l_quantity = 44 + dice(7, %(seed)s, l_orderkey, l_linenumber)
WHERE l_orderkey IN (
    SELECT key
    FROM (SELECT some_order(%(seed)s, number) AS key FROM generate_series(1, 7 * %(rows)s) AS number) AS drawn
    WHERE (SELECT count(*) FROM lineitem AS l WHERE l.l_orderkey = key) >= 7
    ORDER BY key LIMIT %(rows)s
);

-- insert_lineitem --
INSERT INTO lineitem
SELECT line.*
FROM (SELECT DISTINCT some_order(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number) AS drawn
JOIN orders ON o_orderkey = key
CROSS JOIN LATERAL (SELECT 1 + coalesce(max(l_linenumber), 0) AS next FROM lineitem WHERE l_orderkey = key) AS lines
CROSS JOIN LATERAL new_lines(key, o_orderdate, lines.next, lines.next, %(seed)s) AS line;

-- delete_lineitem --
DELETE FROM lineitem
USING (
    SELECT DISTINCT key, some_line(key, %(seed)s, key) AS line
    FROM (SELECT some_order(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number) AS drawn
) AS gone
WHERE l_orderkey = gone.key AND l_linenumber = gone.line;

-- update_orders --
UPDATE orders SET
    o_custkey = some_customer(%(seed)s, o_orderkey, 1),
    o_orderstatus = one_of('{F,O,P}', %(seed)s, o_orderkey, 2),
    o_totalprice = o_totalprice + dice(100000, %(seed)s, o_orderkey, 3) / 100.0,
    o_orderdate = DATE '1992-01-01' + dice(2406, %(seed)s, o_orderkey, 4)::int,
    o_orderpriority = one_of('{1-URGENT,2-HIGH,3-MEDIUM,4-NOT SPECIFIED,5-LOW}', %(seed)s, o_orderkey, 5),
    o_comment = one_of('{special packages and requests,even ideas,requests for special ideas}', %(seed)s, o_orderkey, 6)
FROM (SELECT DISTINCT some_order(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number) AS drawn
WHERE o_orderkey = key;

-- delete_orders --
WITH gone AS MATERIALIZED (
    SELECT DISTINCT some_order(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number
), lines AS (
    DELETE FROM lineitem WHERE l_orderkey IN (SELECT key FROM gone)
)
DELETE FROM orders WHERE o_orderkey IN (SELECT key FROM gone);

-- update_customer --
UPDATE customer SET
    c_nationkey = drawn.nation,
    c_phone = (10 + drawn.nation)::text || substr(c_phone, 3),
    c_acctbal = dice(1100000, %(seed)s, c_custkey, 2) / 100.0 - 1000,
    c_mktsegment = one_of('{BUILDING,AUTOMOBILE,FURNITURE,MACHINERY,HOUSEHOLD}', %(seed)s, c_custkey, 3),
    c_address = 'address ' || dice(1000000, %(seed)s, c_custkey, 4)
FROM (
    SELECT DISTINCT key, some_nation(%(seed)s, key, 1) AS nation
    FROM (SELECT some_customer(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number) AS every
) AS drawn
WHERE c_custkey = drawn.key;

-- insert_customer --
INSERT INTO customer
SELECT
    key, 'Customer#' || lpad(key::text, 9, '0'), 'address ' || dice(1000000, %(seed)s, key, 1), nation,
    (10 + nation)::text || '-' || 100 + dice(900, %(seed)s, key, 2) || '-555-0000',
    dice(1100000, %(seed)s, key, 3) / 100.0 - 1000,
    one_of('{BUILDING,AUTOMOBILE,FURNITURE,MACHINERY,HOUSEHOLD}', %(seed)s, key, 4), 'new customer'
FROM (
    SELECT most + number AS key, some_nation(%(seed)s, number) AS nation
    FROM (SELECT max(c_custkey) AS most FROM customer) AS last, generate_series(1, %(rows)s) AS number
) AS made;

-- delete_customer --
-- With their orders, and the lines of those.
WITH gone AS MATERIALIZED (
    SELECT DISTINCT some_customer(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number
), their_orders AS MATERIALIZED (
    SELECT o_orderkey AS key FROM orders WHERE o_custkey IN (SELECT key FROM gone)
), lines AS (
    DELETE FROM lineitem WHERE l_orderkey IN (SELECT key FROM their_orders)
), cancelled AS (
    DELETE FROM orders WHERE o_orderkey IN (SELECT key FROM their_orders)
)
DELETE FROM customer WHERE c_custkey IN (SELECT key FROM gone);

-- update_part --
UPDATE part SET
    p_name = regexp_replace(p_name, '^\S+', one_of('{forest,green,lime,almond}', %(seed)s, p_partkey, 1)),
    -- The same random number for both, since queries filter by certain brands in certain containers.
    p_brand = one_of('{Brand#12,Brand#23,Brand#34,Brand#23,Brand#45,Brand#11}', %(seed)s, p_partkey, 2),
    p_container = one_of('{SM CASE,MED BOX,LG BOX,MED BAG,WRAP JAR,SM PKG}', %(seed)s, p_partkey, 2),
    p_type = one_of(
        '{ECONOMY ANODIZED STEEL,LARGE PLATED BRASS,MEDIUM POLISHED TIN,PROMO BURNISHED COPPER,ECONOMY ANODIZED STEEL}',
        %(seed)s, p_partkey, 3
    ),
    p_size = one_of('{15,49,14,23,45,19,3,36,9,15,1,5,10,50}', %(seed)s, p_partkey, 4)::int,
    p_retailprice = p_retailprice + dice(100, %(seed)s, p_partkey, 6)
FROM (SELECT DISTINCT some_part(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number) AS drawn
WHERE p_partkey = key;

-- insert_part --
-- With up to four suppliers.
WITH fresh AS MATERIALIZED (
    SELECT (most + number)::int AS key
    FROM (SELECT max(p_partkey) AS most FROM part) AS last, generate_series(1, %(rows)s) AS number
), made AS (
    INSERT INTO part
    SELECT
        key, one_of('{forest green,green plum,forest lime}', %(seed)s, key, 1) || ' chiffon snow', 'Manufacturer#1',
        one_of('{Brand#12,Brand#23,Brand#34}', %(seed)s, key, 2),
        one_of('{ECONOMY ANODIZED STEEL,LARGE PLATED BRASS,PROMO BURNISHED COPPER}', %(seed)s, key, 3),
        one_of('{15,49,14,23,3}', %(seed)s, key, 4)::int, one_of('{SM CASE,MED BOX,LG BOX}', %(seed)s, key, 5),
        900 + dice(100000, %(seed)s, key, 6) / 100.0, 'new part'
    FROM fresh
)
INSERT INTO partsupp
SELECT
    key, supplier, 1 + dice(9999, %(seed)s, key, supplier, 1), 1 + dice(99900, %(seed)s, key, supplier, 2) / 100.0,
    'new partsupp'
FROM (
    SELECT DISTINCT key, some_supplier(%(seed)s, key, number) AS supplier FROM fresh, generate_series(1, 4) AS number
) AS offered;

-- delete_part --
-- With everything that was offered and ordered of it.
WITH gone AS MATERIALIZED (
    SELECT DISTINCT some_part(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number
), lines AS (
    DELETE FROM lineitem WHERE l_partkey IN (SELECT key FROM gone)
), offered AS (
    DELETE FROM partsupp WHERE ps_partkey IN (SELECT key FROM gone)
)
DELETE FROM part WHERE p_partkey IN (SELECT key FROM gone);

-- update_partsupp --
UPDATE partsupp SET
    ps_availqty = 1 + dice(9999, %(seed)s, ps_partkey, ps_suppkey, 1),
    ps_supplycost = 1 + dice(99900, %(seed)s, ps_partkey, ps_suppkey, 2) / 100.0
FROM (
    SELECT DISTINCT ON (p.ps_partkey) p.ps_partkey AS part, p.ps_suppkey AS supplier
    FROM (SELECT some_part(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number) AS drawn
    JOIN partsupp AS p ON p.ps_partkey = key
    ORDER BY p.ps_partkey, dice(1000, %(seed)s, p.ps_partkey, p.ps_suppkey), p.ps_suppkey
) AS chosen
WHERE ps_partkey = part AND ps_suppkey = supplier;

-- insert_partsupp --
INSERT INTO partsupp
SELECT DISTINCT ON (part, supplier)
    part, supplier, 1 + dice(9999, %(seed)s, part, supplier, 1), 1 + dice(99900, %(seed)s, part, supplier, 2) / 100.0,
    'new partsupp'
FROM (
    SELECT some_part(%(seed)s, number) AS part, some_supplier(%(seed)s, number) AS supplier
    FROM generate_series(1, %(rows)s) AS number
) AS offered
ON CONFLICT DO NOTHING;

-- delete_partsupp --
-- With the lines that were ordered from there.
WITH gone AS MATERIALIZED (
    SELECT DISTINCT ON (ps_partkey) ps_partkey AS part, ps_suppkey AS supplier
    FROM (SELECT some_part(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number) AS drawn
    JOIN partsupp ON ps_partkey = key
    ORDER BY ps_partkey, dice(1000, %(seed)s, ps_partkey, ps_suppkey), ps_suppkey
), lines AS (
    DELETE FROM lineitem USING gone WHERE l_partkey = part AND l_suppkey = supplier
)
DELETE FROM partsupp USING gone WHERE ps_partkey = part AND ps_suppkey = supplier;

-- update_supplier --
UPDATE supplier SET
    s_nationkey = drawn.nation,
    s_phone = (10 + drawn.nation)::text || substr(s_phone, 3),
    s_acctbal = dice(1100000, %(seed)s, s_suppkey, 2) / 100.0 - 1000,
    s_comment = one_of('{Customer told us of no Complaints,even ideas,ironic Customer,Complaints}', %(seed)s, s_suppkey, 3)
FROM (
    SELECT DISTINCT key, some_nation(%(seed)s, key, 1) AS nation
    FROM (SELECT some_supplier(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number) AS every
) AS drawn
WHERE s_suppkey = drawn.key;

-- insert_supplier --
-- With some parts on offer.
WITH fresh AS MATERIALIZED (
    SELECT (most + number)::int AS key, some_nation(%(seed)s, number) AS nation
    FROM (SELECT max(s_suppkey) AS most FROM supplier) AS last, generate_series(1, %(rows)s) AS number
), made AS (
    INSERT INTO supplier
    SELECT
        key, 'Supplier#' || lpad(key::text, 9, '0'), 'address ' || dice(1000000, %(seed)s, key, 1), nation,
        (10 + nation)::text || '-' || 100 + dice(900, %(seed)s, key, 2) || '-555-0000',
        dice(1100000, %(seed)s, key, 3) / 100.0 - 1000, 'new supplier'
    FROM fresh
)
INSERT INTO partsupp
SELECT
    part, key, 1 + dice(9999, %(seed)s, part, key, 1), 1 + dice(99900, %(seed)s, part, key, 2) / 100.0, 'new partsupp'
FROM (
    SELECT DISTINCT key, some_part(%(seed)s, key, number) AS part FROM fresh, generate_series(1, 8) AS number
) AS offered;

-- delete_supplier --
-- With everything offered by them and ordered from them.
WITH gone AS MATERIALIZED (
    SELECT DISTINCT some_supplier(%(seed)s, number) AS key FROM generate_series(1, %(rows)s) AS number
), lines AS (
    DELETE FROM lineitem WHERE l_suppkey IN (SELECT key FROM gone)
), offered AS (
    DELETE FROM partsupp WHERE ps_suppkey IN (SELECT key FROM gone)
)
DELETE FROM supplier WHERE s_suppkey IN (SELECT key FROM gone);

-- update_nation --
-- A column that no query uses.
UPDATE nation SET n_comment = 'comment ' || %(seed)s WHERE n_nationkey = some_nation(%(seed)s);

-- swap_nation --
-- Two nations exchange their names; queries filter by one of the names.
UPDATE nation SET n_name = other.n_name
FROM (
    SELECT a.n_nationkey AS one, b.n_nationkey AS two
    FROM nation AS a, nation AS b
    WHERE a.n_name IN ('GERMANY', 'FRANCE', 'CANADA', 'BRAZIL', 'SAUDI ARABIA') AND a.n_name <> b.n_name
    ORDER BY dice(1000000, %(seed)s, a.n_nationkey, b.n_nationkey), 1, 2 LIMIT 1
) AS pair, nation AS other
WHERE (nation.n_nationkey, other.n_nationkey) IN ((one, two), (two, one));

-- move_nation --
-- To another region.
UPDATE nation SET n_regionkey = some_region(%(seed)s, 1) WHERE n_nationkey = some_nation(%(seed)s);

-- insert_nation --
-- A second nation with the name of another.
INSERT INTO nation
SELECT
    1 + max(n_nationkey), one_of('{GERMANY,FRANCE,CANADA,BRAZIL,SAUDI ARABIA,CHINA}', %(seed)s, 1), some_region(%(seed)s),
    'new nation'
FROM nation;

-- delete_nation --
-- A nation that was inserted later; its customers and suppliers move to the original ones.
WITH gone AS MATERIALIZED (
    SELECT max(n_nationkey) AS key FROM nation WHERE n_nationkey >= 25
), customers AS (
    UPDATE customer SET c_nationkey = mod(c_custkey, 25) FROM gone WHERE c_nationkey = key
), suppliers AS (
    UPDATE supplier SET s_nationkey = mod(s_suppkey, 25) FROM gone WHERE s_nationkey = key
)
DELETE FROM nation USING gone WHERE n_nationkey = key;

-- update_region --
-- A column that no query uses.
UPDATE region SET r_comment = 'comment ' || %(seed)s WHERE r_regionkey = some_region(%(seed)s);

-- swap_region --
-- Two regions exchange their names.
UPDATE region SET r_name = other.r_name
FROM (
    SELECT a.r_regionkey AS one, b.r_regionkey AS two FROM region AS a, region AS b WHERE a.r_name <> b.r_name
    ORDER BY dice(1000000, %(seed)s, a.r_regionkey, b.r_regionkey), 1, 2 LIMIT 1
) AS pair, region AS other
WHERE (region.r_regionkey, other.r_regionkey) IN ((one, two), (two, one));

-- insert_region --
-- A second one of some name; nations may move there.
INSERT INTO region
SELECT 1 + max(r_regionkey), one_of('{EUROPE,ASIA,AMERICA}', %(seed)s), 'new region' FROM region;

-- delete_region --
-- A region that was inserted later; its nations move to the original ones.
WITH gone AS MATERIALIZED (
    SELECT max(r_regionkey) AS key FROM region WHERE r_regionkey >= 5
), nations AS (
    UPDATE nation SET n_regionkey = mod(n_nationkey, 5) FROM gone WHERE n_regionkey = key
)
DELETE FROM region USING gone WHERE r_regionkey = key;
