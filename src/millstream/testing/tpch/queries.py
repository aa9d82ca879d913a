"""The 22 queries of TPC-H with the specification's validation parameters, as PostgreSQL writes
them.

Query 15 is there twice: with its view as a CTE (`q15`) and over the view itself (`q15_view`).
"""

from __future__ import annotations

from millstream.postgres.sql_files import load

SQL = load("millstream.testing.tpch", "queries.sql")

_FRACTION = "0.0001000000"


def queries(scale: float) -> dict[str, str]:
    """Every query by name; the fraction of query 11 is that of the scale."""
    fraction = f"{0.0001 / scale:.10f}"
    return {name: _bare(text).replace(_FRACTION, fraction) for name, text in SQL.items()}


def _bare(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))
