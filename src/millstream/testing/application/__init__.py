"""An application's database, and two hundred queries as its developers and analysts write them.

SCHEMA    its types and tables, and rows in them
CHANGES   what happens to it, step by step: every table changes
QUERIES   by name
"""

from __future__ import annotations

from millstream.postgres.sql_files import load

_PACKAGE = "millstream.testing.application"

SCHEMA = tuple(load(_PACKAGE, "schema.sql")[step] for step in ("schema", "fill"))
CHANGES = tuple(load(_PACKAGE, "schema.sql")[f"change_{number}"] for number in (1, 2, 3))
QUERIES = load(_PACKAGE, "queries.sql")
