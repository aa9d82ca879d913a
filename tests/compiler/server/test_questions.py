"""The double that ships answers the questions of planning as PostgreSQL does."""

from __future__ import annotations

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.compiler.refusal import accepted
from millstream.compiler.server.plan_query import _Server
from millstream.compiler.server.questions import PlanningServer
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.testing.planning_server import PlanningServerDouble

TYPED = [
    '"o"."amount"', '"o"."amount" * 2', '"o"."rate" + "o"."amount"', '"o"."id" + 1', '"o"."quantity" * "o"."customer"',
    '- "o"."weight"', '"o"."weight" * "o"."quantity"', '"o"."amount" > 3 AND NOT "o"."note" IS NULL',
    'CASE WHEN "o"."paid" THEN NULL ELSE "o"."note" END', 'COALESCE("o"."id", 0)',
    'CAST("o"."id" AS numeric(5,1))', "99999999999", "1.5", 'lower("o"."note")', 'abs("o"."weight")',
    'round("o"."rate")', 'length("o"."note")', '"o"."placed"',
]  # fmt: skip
VALUES = [
    "1", "'a'", "true", "CAST(NULL AS integer)", "(NULL) + CAST(NULL AS integer)", "CAST('b' AS text)",
    "1 + CAST(NULL AS integer)", "lower(CAST(NULL AS text))", "CAST(NULL AS integer) = 1", "- CAST(NULL AS integer)",
    "starts_with('a', NULL)", "round(CAST(NULL AS numeric), 2)", "CAST(NULL AS text) || 'a'",
]  # fmt: skip


def orders(shop: Connection) -> Scan:
    row = shop.execute("SELECT 'orders'::regclass::oid::int8").fetchone()
    assert row is not None
    return Scan(relations.table(shop, row[0]), "o")


def test_the_double_infers_the_types_of_the_server(shop: Connection) -> None:
    scan = orders(shop)
    servers: list[PlanningServer] = [_Server(shop, {}), PlanningServerDouble()]
    found = [accepted(server.types(list(map(Expr, TYPED)), [scan])) for server in servers]
    real, double = (list(map(str, types)) for types in found)
    assert dict(zip(TYPED, double, strict=True)) == dict(zip(TYPED, real, strict=True))


def test_the_double_evaluates_constants_as_the_server_does(shop: Connection) -> None:
    assert PlanningServerDouble().values(VALUES) == _Server(shop, {}).values(VALUES)
