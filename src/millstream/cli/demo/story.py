"""The three stream tables of the demo, what each of them shows, and the alteration of a source."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

# The schedule of all three.
SCHEDULE = "500ms"

# A column that price_range reads and groups by; the shop's application does not use it.
ALTERATION = "ALTER TABLE products RENAME COLUMN name TO title"
ALTERED_SOURCE, ALTERED_READER = "products", "price_range"


@dataclass(frozen=True)
class Chapter:
    """One stream table of the demo."""

    name: str
    shows: str
    query: str
    sources: tuple[str, ...]

    @property
    def statement(self) -> str:
        """The SQL statement that creates it."""
        query = indent(self.query, "    ")
        return f"SELECT millstream.create_stream_table('{self.name}', $$\n{query}\n$$, schedule => '{SCHEDULE}')"


CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        name="open_orders",
        shows="a filter: rows come and go as orders are placed, paid and shipped",
        query="""
SELECT id, customer_id, status, placed_at
FROM orders
WHERE status <> 'shipped'
""".strip(),
        sources=("orders",),
    ),
    Chapter(
        name="sales_by_region",
        shows="joins and sums: a customer who moves takes past sales along",
        query="""
SELECT c.region, count(*) AS lines,
       sum(l.quantity * l.unit_price) AS revenue
FROM order_lines AS l
JOIN orders AS o ON o.id = l.order_id
JOIN customers AS c ON c.id = o.customer_id
GROUP BY c.region
""".strip(),
        sources=("order_lines", "orders", "customers"),
    ),
    Chapter(
        name="price_range",
        shows="min and max: only products with a change are recomputed",
        query="""
SELECT p.name, count(*) AS sold,
       min(l.unit_price) AS lowest, max(l.unit_price) AS highest
FROM order_lines AS l
JOIN products AS p ON p.id = l.product_id
GROUP BY p.name
HAVING count(*) >= 10
""".strip(),
        sources=("order_lines", "products"),
    ),
)
