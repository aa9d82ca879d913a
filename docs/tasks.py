"""What people do with SQL, each with queries that the suite keeps as stream tables.

The queries are those of `millstream.testing.application`, by name; `tests/law/test_application.py`
keeps all that stand here, changes their tables, and compares.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """Something that people do with SQL."""

    name: str
    told: str
    queries: tuple[str, ...]


TASKS = (
    Task(
        "Totals per day, week or month",
        "Times may be truncated, cast to dates and printed: the time zone of the session that creates the stream "
        "table is part of its definition. Days without rows come from `generate_series`.",
        ("daily_active_users", "revenue_by_month_and_currency", "calendar_with_gaps_filled"),
    ),
    Task(
        "Subtotals and pivots",
        "`ROLLUP`, `CUBE` and `GROUPING SETS` are kept as several groupings of the same rows; `FILTER` makes "
        "columns of values.",
        ("revenue_rollup", "pivot_by_filter"),
    ),
    Task(
        "Running totals and moving averages",
        "A window function is computed again for the partitions that a change touches. Without `PARTITION BY` that is "
        "the whole result: give large tables a partition.",
        ("running_revenue_short_frame", "moving_average", "sum_over_a_week"),
    ),
    Task(
        "The first, the last, the top n of each group",
        "`DISTINCT ON`, a numbered window and `LATERAL` with `LIMIT` all work; a change touches its own group only.",
        ("last_event_of_each_user", "top_products_per_category", "latest_order_lateral"),
    ),
    Task(
        "The newest n of all",
        "`LIMIT` needs an `ORDER BY`, so that it is known which rows are the first.",
        ("activity_feed_latest", "top_with_ties"),
    ),
    Task("Duplicates", "Found, or left out.", ("duplicate_names", "deduplicated_by_row_number")),
    Task("Cohorts, retention and funnels", "", ("retention_by_month", "funnel")),
    Task("Sessions", "Rows that follow each other closely share a number.", ("sessions",)),
    Task("Gaps and islands", "", ("gaps_in_days", "islands_of_days")),
    Task(
        "Hierarchies",
        "A recursive query follows the changed rows; a loop in the data ends where `UNION` or `CYCLE` ends it.",
        ("category_tree", "products_under_each_category"),
    ),
    Task(
        "What was valid when",
        "A range is looked up by `@>`, `<@` or `&&`; an index of yours on the range, GiST, is used.",
        ("price_at_order_time_or_nothing", "monthly_recurring_revenue", "overlapping_prices"),
    ),
    Task(
        "Search",
        "Full text, patterns and similar names, also between columns of two tables.",
        ("full_text_search", "tickets_with_their_topics"),
    ),
    Task("Places", "With PostgreSQL's geometric types.", ("people_per_room",)),
    Task(
        "One row with everything about a customer",
        "Subqueries in the select list, or joins of grouped subqueries: each is kept by itself.",
        ("customer_overview_by_subqueries", "payments_matched_to_totals"),
    ),
    Task(
        "Comparisons with an average, a maximum, a predecessor",
        "",
        ("above_average_of_category", "equal_to_scalar_subquery", "previous_order_of_account"),
    ),
    Task(
        "What is missing, and what does not match",
        "",
        ("orders_without_items", "reconciliation", "bought_one_but_not_other"),
    ),
    Task(
        "Documents",
        "JSON is taken apart and put together; whole documents are compared and grouped as PostgreSQL does.",
        ("json_document_per_order", "jsonb_array_elements", "conversion_by_source"),
    ),
)
