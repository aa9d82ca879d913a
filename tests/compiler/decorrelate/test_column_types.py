"""The texts by which the server is asked for types: a correlated subquery must stand alone in them."""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.algebra.expr import Ref
from millstream.algebra.types import PgType
from millstream.compiler.decorrelate.column_types import outer_column_types, standalone_text
from millstream.compiler.decorrelate.scope import Scope
from millstream.testing.planning_server import pg_type

OUTER = parsed("SELECT c.id FROM customers AS c JOIN regions AS r ON r.id = c.region")


class Server:
    """Answers each question with numeric(9,2); `asked` holds the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def types(self, select: str) -> tuple[PgType, ...]:
        self.asked.append(select)
        return (pg_type("numeric(9,2)"),)


def outer_scope() -> Scope:
    assert isinstance(OUTER, exp.Select)
    return Scope(None, OUTER).with_columns(
        "c", ["factor", "id"], [Ref("c", "factor"), Ref("c", "id")]
    )


def test_an_uncorrelated_query_is_asked_as_it_is_and_nothing_else() -> None:
    server = Server()
    query = parsed("SELECT o.total FROM o")
    assert standalone_text(query, {}, outer_scope(), server.types) == "SELECT o.total FROM o"
    assert standalone_text(query, {}, None, server.types) == "SELECT o.total FROM o"
    assert server.asked == []


def test_outer_columns_become_nulls_of_their_types() -> None:
    server = Server()
    query = parsed("SELECT o.total * c.factor FROM o WHERE o.x = c.factor")
    text = standalone_text(query, {}, outer_scope(), server.types)
    assert "c.factor" not in text
    assert text.count("CAST(NULL AS DECIMAL(9, 2))") == 2


def test_the_type_of_an_outer_column_is_asked_over_the_from_of_its_own_query() -> None:
    server = Server()
    column = parsed("SELECT c.factor").find(exp.Column)
    assert column is not None
    assert outer_column_types([column], {}, outer_scope(), server.types) == (
        pg_type("numeric(9,2)"),
    )
    assert server.asked == [
        "SELECT c.factor AS c FROM customers AS c JOIN regions AS r ON r.id = c.region"
    ]


def test_the_query_itself_is_not_changed() -> None:
    query = parsed("SELECT c.factor FROM o")
    standalone_text(query, {}, outer_scope(), Server().types)
    assert query.sql() == "SELECT c.factor FROM o"


def test_an_outer_column_that_is_an_output_keeps_its_name() -> None:
    """The defect: a later item of FROM that referenced it was told that the column does not exist."""
    query = parsed(
        "SELECT w.v FROM (SELECT c.factor, o.x FROM o) AS u, LATERAL (SELECT u.factor AS v) AS w"
    )
    text = standalone_text(query, {}, outer_scope(), Server().types)
    assert 'SELECT CAST(NULL AS DECIMAL(9, 2)) AS "factor", o.x FROM o' in text
