"""A shop of any size for the benchmarks: customers and orders, indexed as an application would."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import psycopg

QUERY = """
    SELECT c.region, sum(o.amount) AS total, avg(o.quantity) AS average, count(*) AS orders
    FROM orders AS o JOIN customers AS c ON c.id = o.customer_id
    GROUP BY c.region
"""

Connection = psycopg.Connection[tuple[object, ...]]


def fill(conn: Connection, orders: int, customers: int) -> None:
    """Make the two tables and fill them."""
    conn.execute("CREATE TABLE customers (id int PRIMARY KEY, region text NOT NULL, name text)")
    conn.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int NOT NULL, amount numeric(12,2), quantity int)"
    )
    conn.execute(
        "INSERT INTO customers SELECT i, 'region ' || i %% 50, 'customer ' || i FROM generate_series(1, %s) AS i",
        (customers,),
    )
    conn.execute(
        "INSERT INTO orders SELECT i, 1 + (i * 7919) %% %s, (i %% 10000) / 100.0, i %% 9 "
        "FROM generate_series(1, %s::int8) AS i",
        (customers, orders),
    )
    conn.execute("CREATE INDEX ON orders (customer_id)")
    conn.execute("VACUUM (ANALYZE) orders, customers")


def change(conn: Connection, seed: int, rows: int = 10) -> None:
    """Change that many orders: a mix of inserts, updates and deletes, in one transaction."""
    with conn.transaction():
        for number in range(rows):
            key = seed * rows + number
            if number % 3 == 0:
                conn.execute(
                    "INSERT INTO orders VALUES (%s, 1 + %s %% 1000, 12.34, 3)", (10**12 + key, key)
                )
            elif number % 3 == 1:
                conn.execute(
                    "UPDATE orders SET amount = amount + 1 WHERE id = %s", (1 + key * 13 % 900_000,)
                )
            else:
                conn.execute("DELETE FROM orders WHERE id = %s", (1 + key * 17 % 900_000,))


def median_ms(work: Callable[[], object], times: int) -> float:
    """The median time of a piece of work."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)
