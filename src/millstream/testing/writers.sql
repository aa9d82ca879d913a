-- tables --
-- Orders have a key that changes, customers are joined to orders, visits have no key and many equal rows.
CREATE TABLE customers (
    id      integer PRIMARY KEY,
    region  text NOT NULL
);
CREATE TABLE orders (
    id        integer PRIMARY KEY,
    customer  integer,
    amount    numeric(12,2),
    note      text
);
CREATE INDEX ON orders (customer);
CREATE TABLE visits (
    page     text NOT NULL,
    seconds  integer
);

-- rows --
INSERT INTO customers SELECT n, 'region ' || mod(n, 6) FROM generate_series(1, %(customers)s) AS n;
INSERT INTO orders
SELECT n, 1 + mod(n * 7 / 2, %(customers)s), mod(n * 37, 1000) / 10.0, 'note ' || mod(n, 40)
FROM generate_series(1, %(orders)s, 2) AS n;
INSERT INTO visits SELECT 'page ' || mod(n, 20), mod(n, 5) FROM generate_series(1, 600) AS n;
ANALYZE customers, orders, visits;

-- insert_orders --
INSERT INTO orders
SELECT n, %(customer)s, %(amount)s, 'note ' || mod(n, 40) FROM generate_series(%(order)s, %(order)s + %(few)s) AS n
ON CONFLICT DO NOTHING;

-- upsert_orders --
INSERT INTO orders
SELECT n, %(customer)s, %(amount)s, NULL FROM generate_series(%(order)s, %(order)s + %(few)s) AS n
ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, customer = coalesce(orders.customer, excluded.customer);

-- merge_orders --
MERGE INTO orders AS o USING generate_series(%(order)s, %(order)s + %(few)s) AS n ON o.id = n
WHEN MATCHED AND mod(n, 3) = 0 THEN DELETE
WHEN MATCHED THEN UPDATE SET note = 'merged ' || n
WHEN NOT MATCHED THEN INSERT VALUES (n, %(customer)s, %(amount)s, 'merged');

-- change_amounts --
UPDATE orders SET amount = %(amount)s WHERE id BETWEEN %(order)s AND %(order)s + %(few)s;

-- move_orders --
UPDATE orders SET customer = CASE WHEN mod(id, 5) > 0 THEN %(customer)s END
WHERE id BETWEEN %(order)s AND %(order)s + %(few)s;

-- change_order_key --
UPDATE orders SET id = %(other)s WHERE id = %(order)s;

-- delete_orders --
DELETE FROM orders WHERE id BETWEEN %(order)s AND %(order)s + %(few)s * 2;

-- change_customer_key --
-- A customer gets another's id, and the orders keep theirs.
UPDATE customers SET id = %(key)s WHERE id = %(customer)s;

-- move_customer --
UPDATE customers SET region = 'region ' || mod(%(order)s, 6) WHERE id = %(customer)s;

-- insert_customer --
INSERT INTO customers VALUES (%(key)s, 'region ' || mod(%(order)s, 6))
ON CONFLICT (id) DO UPDATE SET region = excluded.region;

-- insert_visits --
INSERT INTO visits SELECT %(page)s, mod(n, 2) FROM generate_series(1, %(few)s) AS n;

-- lengthen_visits --
UPDATE visits SET seconds = mod(coalesce(seconds, 0) + 1, 5) WHERE page = %(page)s AND seconds = mod(%(order)s, 5);

-- blur_visits --
-- Some of several equal rows change, the others do not.
UPDATE visits SET seconds = NULL
WHERE ctid = ANY (ARRAY(SELECT ctid FROM visits WHERE page = %(page)s LIMIT %(few)s));

-- delete_visits --
-- Some of several equal rows are deleted, the others remain.
DELETE FROM visits WHERE ctid = ANY (ARRAY(SELECT ctid FROM visits WHERE page = %(page)s LIMIT %(few)s * 2));

-- copy_visits --
COPY visits FROM STDIN;

-- truncate_orders --
TRUNCATE orders;

-- refill_orders --
INSERT INTO orders
SELECT n, 1 + mod(n, %(customers)s), mod(n * 37, 1000) / 10.0, 'note' FROM generate_series(1, %(orders)s, 3) AS n;

-- truncate_visits --
TRUNCATE visits;

-- refill_visits --
INSERT INTO visits SELECT 'page ' || mod(n, 20), 1 FROM generate_series(1, 300) AS n;
