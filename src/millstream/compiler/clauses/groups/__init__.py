"""GROUP BY, aggregates and grouping sets."""
