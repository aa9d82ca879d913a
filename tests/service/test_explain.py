"""What `explain` shows: the plan, and the choices behind it."""

from __future__ import annotations

from millstream.catalog.installation import install
from millstream.compiler.server.plan_query import plan_query
from millstream.postgres.connection import Connection
from millstream.service.explain import Explanation
from millstream.testing.catalog_rows import stream_table

QUERY = "SELECT avg(n) AS a FROM (SELECT g, count(*) AS n FROM t GROUP BY g) AS q"


def test_the_choices_of_the_planner_are_shown_with_their_reasons(conn: Connection) -> None:
    install.install(conn)
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, g int)")
    explanation = Explanation(stream_table(), plan_query(conn, QUERY), None)
    titles = [line for line in str(explanation).splitlines() if line and not line.startswith(" ")]
    assert titles == [
        "Stream table", "Query, as PostgreSQL reads it", "Relation", "Blocks", "Choices", "Demand",
        "Leaf reads (PostgreSQL)", "Spark SQL", "Last refresh",
    ]  # fmt: skip
    (choice,) = explanation.as_dict()["choices"]
    assert choice["block"] == "block 0"
    assert choice["what"] == "stores a row for each group"
    assert f"  block 0  {choice['what']}, because {choice['why']}" in str(explanation).splitlines()
