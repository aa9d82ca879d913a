-- tables --
-- A small shop: customers, products, orders.
CREATE TABLE customers (
    id      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text NOT NULL,
    region  text NOT NULL
);
CREATE TABLE products (
    id      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text NOT NULL,
    price   numeric(10,2) NOT NULL
);
CREATE TABLE orders (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id  integer NOT NULL REFERENCES customers,
    status       text NOT NULL CHECK (status IN ('new', 'paid', 'shipped')),
    placed_at    timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE order_lines (
    order_id    bigint NOT NULL REFERENCES orders ON DELETE CASCADE,
    line        integer NOT NULL,
    product_id  integer NOT NULL REFERENCES products,
    quantity    integer NOT NULL,
    unit_price  numeric(10,2) NOT NULL,
    PRIMARY KEY (order_id, line)
);
CREATE INDEX ON orders (customer_id);
CREATE INDEX ON order_lines (product_id);

-- customers --
INSERT INTO customers (name, region)
SELECT 'customer ' || n, (ARRAY['north', 'south', 'east', 'west'])[1 + mod(n, 4)] FROM generate_series(1, %(customers)s) AS n;

-- products --
INSERT INTO products (name, price)
SELECT 'product ' || n, round((5 + random() * 95)::numeric, 2) FROM generate_series(1, %(products)s) AS n;

-- orders --
-- One past order in fifty is still open.
INSERT INTO orders (customer_id, status, placed_at)
SELECT 1 + floor(random() * %(customers)s), CASE WHEN mod(n, 50) = 0 THEN 'paid' ELSE 'shipped' END,
       now() - interval '30 days' * random()
FROM generate_series(1, %(orders)s) AS n;

-- order_lines --
INSERT INTO order_lines (order_id, line, product_id, quantity, unit_price)
SELECT o.id, n, p.id, 1 + floor(random() * 5), p.price
FROM orders AS o
CROSS JOIN generate_series(1, 3) AS n
JOIN products AS p ON p.id = 1 + mod(o.id * 7 + n * 31, %(products)s)
WHERE n = 1 OR mod(o.id + n, 2) = 0;

-- statistics --
ANALYZE customers, products, orders, order_lines;

-- sizes --
-- The number of rows of each table.
SELECT 'customers', count(*) FROM customers
UNION ALL SELECT 'products', count(*) FROM products
UNION ALL SELECT 'orders', count(*) FROM orders
UNION ALL SELECT 'order_lines', count(*) FROM order_lines;

-- place_order --
WITH placed AS (
    INSERT INTO orders (customer_id, status) VALUES (1 + floor(random() * %(customers)s), 'new') RETURNING id
), basket AS (
    SELECT id, price, row_number() OVER () AS line
    FROM (SELECT id, price FROM products ORDER BY random() LIMIT %(lines)s) AS chosen
)
INSERT INTO order_lines (order_id, line, product_id, quantity, unit_price)
SELECT placed.id, basket.line, basket.id, 1 + floor(random() * 5), basket.price FROM placed, basket;

-- move_on --
-- Orders are paid, then shipped.
UPDATE orders SET status = CASE status WHEN 'new' THEN 'paid' ELSE 'shipped' END
WHERE id IN (SELECT id FROM orders WHERE status <> 'shipped' ORDER BY id DESC LIMIT %(lines)s);

-- change_quantity --
UPDATE order_lines SET quantity = 1 + mod(quantity, 5)
WHERE order_id = (SELECT max(id) FROM orders) - floor(random() * 500)::bigint AND line = 1;

-- cancel_order --
-- Its lines are deleted with it.
DELETE FROM orders WHERE id = (SELECT max(id) FROM orders) - floor(random() * 500)::bigint;

-- change_price --
UPDATE products SET price = round(price * (0.9 + random() * 0.2)::numeric, 2)
WHERE id = 1 + floor(random() * %(products)s)::integer;

-- move_customer --
UPDATE customers SET region = (ARRAY['north', 'south', 'east', 'west'])[1 + floor(random() * 4)::integer]
WHERE id = 1 + floor(random() * %(customers)s)::integer;
