"""What the catalog says of rows is believed only where it holds for every row there is."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from millstream.client import Millstream
from millstream.testing import oracle

pytestmark = pytest.mark.spark

ASKING = "CREATE TABLE q (id int PRIMARY KEY, c int); INSERT INTO q VALUES (1, 3), (2, 4)"


@pytest.fixture
def writer(ms: Millstream, database: str) -> psycopg.Connection:
    return psycopg.connect(database, autocommit=True)


def exact(
    ms: Millstream, writer: psycopg.Connection, queries: Sequence[str], *changes: str
) -> None:
    """Equal to PostgreSQL's answer when created, and after each change."""
    for number, query in enumerate(queries):
        ms.create_stream_table(f"st_{number}", query, schedule="1h")
    for change in ("SELECT 1", *changes):
        writer.execute(change.encode())
        ms.refresh_all()
        for number, query in enumerate(queries):
            oracle.check(ms.app.conn, query, f"st_{number}")


def test_a_not_null_that_is_not_validated(ms: Millstream, writer: psycopg.Connection) -> None:
    if writer.info.server_version < 180000:
        pytest.skip("NOT NULL ... NOT VALID came with PostgreSQL 18")
    writer.execute(ASKING)
    writer.execute(
        "CREATE TABLE n (id int, v int); INSERT INTO n VALUES (NULL, 1), (NULL, 2), (3, 3)"
    )
    writer.execute(
        "CREATE UNIQUE INDEX ON n (id); ALTER TABLE n ADD CONSTRAINT nn NOT NULL id NOT VALID"
    )
    queries = [
        "SELECT id, v FROM n",
        "SELECT q.id FROM q WHERE q.c NOT IN (SELECT id FROM n)",
        "SELECT n.id FROM q JOIN n ON n.v = q.id",
    ]
    exact(ms, writer, queries, "DELETE FROM n WHERE v = 1", "DELETE FROM n WHERE id IS NULL")


def test_a_not_null_that_comes_back_without_a_look_at_the_rows(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    if writer.info.server_version < 180000:
        pytest.skip("NOT NULL ... NOT VALID came with PostgreSQL 18")
    writer.execute(ASKING)
    writer.execute("CREATE TABLE n (id int NOT NULL, v int); INSERT INTO n VALUES (3, 3)")
    change = """
        ALTER TABLE n ALTER id DROP NOT NULL; INSERT INTO n VALUES (NULL, 1);
        ALTER TABLE n ADD CONSTRAINT nn NOT NULL id NOT VALID
    """
    exact(ms, writer, ["SELECT q.id FROM q WHERE q.c NOT IN (SELECT id FROM n)"], change)


def test_a_not_null_that_children_do_not_have(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute(ASKING)
    if writer.info.server_version < 180000:
        writer.execute("CREATE TABLE par (id int NOT NULL); CREATE TABLE chi () INHERITS (par)")
        writer.execute("ALTER TABLE chi ALTER id DROP NOT NULL")
    else:
        writer.execute("CREATE TABLE par (id int, CONSTRAINT nn NOT NULL id NO INHERIT)")
        writer.execute("CREATE TABLE chi () INHERITS (par)")
    writer.execute("INSERT INTO par VALUES (3)")
    queries = [
        "SELECT q.id FROM q WHERE q.c NOT IN (SELECT id FROM par)",
        "SELECT q.id, q.c IN (SELECT id FROM par) AS x FROM q",
        "SELECT q.id FROM q WHERE q.c <> ALL (SELECT id FROM par)",
    ]
    exact(ms, writer, queries, "INSERT INTO chi VALUES (NULL)")


def test_a_child_that_comes_later_and_may_have_nulls(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(ASKING)
    writer.execute("CREATE TABLE par (id int NOT NULL); INSERT INTO par VALUES (3)")
    inherits = "CREATE TABLE chi () INHERITS (par); ALTER TABLE chi ALTER id DROP NOT NULL"
    if writer.info.server_version >= 180000:
        writer.execute(
            "ALTER TABLE par ALTER id DROP NOT NULL; ALTER TABLE par ADD CONSTRAINT n NOT NULL id NO INHERIT"
        )
        inherits = "CREATE TABLE chi () INHERITS (par)"
    change = f"{inherits}; INSERT INTO chi VALUES (NULL)"
    exact(ms, writer, ["SELECT q.id FROM q WHERE q.c NOT IN (SELECT id FROM par)"], change)


def test_a_unique_index_by_another_collation(ms: Millstream, writer: psycopg.Connection) -> None:
    try:
        writer.execute(
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    except psycopg.Error:
        pytest.skip("this server was built without ICU")
    writer.execute(ASKING)
    writer.execute(
        'CREATE TABLE p (id text COLLATE ci NOT NULL, v int); CREATE UNIQUE INDEX ON p (id COLLATE "C")'
    )
    writer.execute("INSERT INTO p VALUES ('a', 1), ('A', 2)")
    queries = ["SELECT id, v FROM p", "SELECT q.id AS qid, p.id, p.v FROM q JOIN p ON p.v = q.id"]
    exact(ms, writer, queries, "INSERT INTO p VALUES ('b', 3), ('B', 4)")


def test_a_unique_index_by_another_class_of_operators_is_no_key(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(
        "CREATE TABLE p (id text NOT NULL, v int); CREATE UNIQUE INDEX ON p (id text_pattern_ops)"
    )
    writer.execute("INSERT INTO p VALUES ('a', 1), ('A', 2)")
    exact(ms, writer, ["SELECT id, v FROM p"], "INSERT INTO p VALUES ('b', 3), ('B', 4)")
