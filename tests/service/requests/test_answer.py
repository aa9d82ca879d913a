"""Requests are executed with the rights of whoever asks, answered once, and survive the service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.bundled.server import Server, embedded
from millstream.catalog import requests as rows
from millstream.catalog import stream_tables
from millstream.catalog.processes import leadership
from millstream.catalog.processes.leadership import Epoch
from millstream.catalog.target import write_guard
from millstream.errors import Deposed
from millstream.observe.failpoint import REQUEST_FAILPOINTS, VARIABLE
from millstream.postgres.table_locks import Patience
from millstream.refresh import refresher
from millstream.service.requests import answer

ROLES = """
    CREATE ROLE service LOGIN SUPERUSER; CREATE ROLE millstream_operator; CREATE ROLE millstream_reader;
    CREATE ROLE owner LOGIN IN ROLE millstream_operator; CREATE ROLE operator LOGIN IN ROLE millstream_operator;
    CREATE SCHEMA shop; GRANT USAGE ON SCHEMA shop TO owner, operator; GRANT CREATE ON SCHEMA shop TO owner;
    CREATE SCHEMA other; GRANT USAGE ON SCHEMA other TO owner;
    CREATE TABLE shop.orders (id int PRIMARY KEY, region text, amount int);
    INSERT INTO shop.orders VALUES (1, 'north', 10), (2, 'south', 20);
    CREATE TABLE shop.secret (id int PRIMARY KEY); GRANT SELECT ON shop.orders TO owner;
    CREATE TABLE other.orders (id int PRIMARY KEY, region text); GRANT SELECT ON other.orders TO owner;
"""
TOTALS = "SELECT region, sum(amount) AS total FROM orders GROUP BY region"

# An answer as JSON has it.
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def service(spark: SparkSession) -> Iterator[tuple[Server, Millstream]]:
    """A server with roles, and a service with a stream table `shop.totals` of the role `owner`,
    made by request.
    """
    bindir = os.environ.get("MILLSTREAM_TEST_BINDIR") or None
    with embedded(bindir=bindir, settings={"fsync": "off"}) as running:
        with psycopg.connect(running.dsn, autocommit=True) as admin:
            admin.execute(ROLES)
        with millstream.connect(running.dsn_for("service", "postgres"), spark=spark) as ms:
            yield running, ms


@pytest.fixture
def ms(service: tuple[Server, Millstream]) -> Millstream:
    """The service."""
    return service[1]


class Role:
    """A session of a role, whose path begins with schema shop."""

    def __init__(self, server: Server, name: str, ms: Millstream) -> None:
        self.conn = psycopg.connect(server.dsn_for(name, "postgres"), autocommit=True)
        self.conn.execute("SET search_path = shop, public; SET client_min_messages = error")
        self.ms = ms

    def ask(self, call: str) -> int:
        """Call a function of the SQL door; return the id of the request."""
        id_: int = self.conn.execute(f"SELECT millstream.{call}".encode()).fetchall()[0][0]
        return id_

    def answer(self, call: str) -> Answer:
        """The result, or the error, after the service has worked on the request."""
        id_ = self.ask(call)
        work(self.ms)
        return self.look(id_)

    def look(self, id_: int) -> Answer:
        """The result or the error of a request."""
        query = "SELECT status, result, error FROM millstream.own_requests WHERE id = %s"
        status, result, error = self.conn.execute(query, (id_,)).fetchall()[0]
        assert (status == "DONE", status == "FAILED") == (result is not None, error is not None)
        return dict(result or error or {})


@pytest.fixture
def owner(service: tuple[Server, Millstream]) -> Iterator[Role]:
    """A session of the role that may create tables in schema shop."""
    role = Role(service[0], "owner", service[1])
    yield role
    role.conn.close()


@pytest.fixture
def operator(service: tuple[Server, Millstream]) -> Iterator[Role]:
    """A session of a role that may ask, and read nothing."""
    role = Role(service[0], "operator", service[1])
    yield role
    role.conn.close()


def work(ms: Millstream) -> None:
    """What the service's loop does."""
    for request in answer.waiting(ms.app.conn):
        answer.execute(ms.app, request.id)


@pytest.fixture
def totals(ms: Millstream, owner: Role) -> Iterator[str]:
    """The stream table `shop.totals`, made by a request of its owner."""
    answer = owner.answer(f"create_stream_table('totals', '{TOTALS}', schedule => 'manual')")
    assert (answer["name"], answer["action"], answer["report"]["action"]) == (
        '"shop"."totals"',
        "created",
        "FULL",
    )
    yield "totals"
    if any(table.name == "totals" for table in stream_tables.every(ms.app.conn)):
        ms.drop_stream_table("shop.totals")


def test_the_life_of_a_stream_table_by_requests(ms: Millstream, owner: Role, totals: str) -> None:
    assert ms.status()[0].owner == "owner"
    owner.conn.execute("RESET ROLE")
    ms.app.conn.execute("INSERT INTO shop.orders VALUES (3, 'north', 5) ON CONFLICT DO NOTHING")
    assert owner.answer("refresh_stream_table('totals')")["action"] == "DIFFERENTIAL"
    verified = owner.answer("verify_stream_table('totals')")
    assert (verified["ok"], verified["rows"]) == (True, 2)
    altered = owner.answer("alter_stream_table('totals', schedule => '5m', status => 'SUSPENDED')")
    assert altered["changed"] == ["schedule", "status"]
    assert [(one.schedule, one.status) for one in ms.status()] == [("5m", "SUSPENDED")]
    assert owner.answer("drop_stream_table('totals')")["action"] == "dropped"
    assert ms.status() == []
    assert owner.answer("validate_query('SELECT region FROM orders')")["ok"] is True
    assert "orders" in owner.answer("explain_query('SELECT region FROM orders')")["plan"]
    refused = owner.answer("validate_query('SELECT random() FROM orders')")
    assert (refused["ok"], refused["error"]["code"]) == (False, "MS103")


def test_a_replacement_creates_alters_or_leaves_alone(ms: Millstream, owner: Role) -> None:
    call = f"create_or_replace_stream_table('totals', '{TOTALS}', schedule => '{{}}')"
    assert owner.answer(call.format("5m"))["action"] == "created"
    assert owner.answer(call.format("5m"))["action"] == "unchanged"
    answer = owner.answer(call.format("10m"))
    assert (answer["action"], answer["changed"]) == ("altered", ["schedule"])
    # Names are looked up along the path of who asks.
    query = "SELECT region, min(id) AS total FROM orders GROUP BY region"
    assert owner.answer(f"alter_stream_table('totals', query => '{query}')")["changed"] == ["query"]
    assert owner.answer("verify_stream_table('totals')")["ok"]
    assert owner.answer("drop_stream_table('totals')")["action"] == "dropped"


# -- rights ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "code"),
    [
        # No right to read it; none to create tables there, although the service has it.
        ("create_stream_table('x', 'SELECT id FROM shop.secret')", "MS010"),
        ("create_stream_table('other.x', 'SELECT id FROM orders')", "MS004"),
        ("create_stream_table('nowhere.x', 'SELECT id FROM orders')", "MS005"),
        ("create_stream_table('x', 'SELECT id FROM orders', settings => '{\"a\": 1}')", "MS005"),
        ("create_stream_table('x', 'SELECT id FROM orders', assume_immutable => '{f}')", "MS005"),
        ("create_stream_table('x', 'SELECT id FROM orders', schedule => 'often')", "MS005"),
        ("request('create', 'x', '{\"query\": \"SELECT id FROM shop.secret\", \"schedule\": \"1m\","
         " \"refresh_mode\": \"AUTO\", \"initialize\": true, \"owner\": \"service\"}')", "MS004"),
        ("request('alter', 'x', '{\"schedule\": 7}')", "MS202"),
        ("validate_query('SELECT id FROM shop.secret')", None),
    ],
)  # fmt: skip
def test_nothing_is_done_that_the_role_could_not_do_itself(
    ms: Millstream, owner: Role, call: str, code: str | None
) -> None:
    try:
        answer = owner.answer(call)
    except psycopg.Error as error:
        answer = {"code": error.sqlstate}
    assert (answer.get("code") or answer["error"]["code"]) == (code or "MS010")
    assert ms.status() == []


def test_arguments_that_are_no_object_are_not_read(
    ms: Millstream, operator: Role, totals: str
) -> None:
    """The bug: read as pairs, they gave the stream table of another role a query.

    The catalog refuses them too.
    """
    id_ = operator.ask("alter_stream_table('totals', schedule => '5m')")
    ms.app.conn.execute("ALTER TABLE millstream.requests DROP CONSTRAINT requests_arguments_check")
    ms.app.conn.execute(
        'UPDATE millstream.requests SET arguments = \'[["query", "SELECT 1"]]\' WHERE id = %s',
        (id_,),
    )
    work(ms)
    assert operator.look(id_)["code"] == "MS005"
    assert stream_tables.every(ms.app.conn)[0].query == TOTALS
    ms.app.conn.execute("DELETE FROM millstream.requests WHERE id = %s", (id_,))
    check = "CHECK (jsonb_typeof(arguments) = 'object')"
    ms.app.conn.execute(
        f"ALTER TABLE millstream.requests ADD CONSTRAINT requests_arguments_check {check}"
    )


def test_names_in_the_query_are_those_of_whoever_asks(ms: Millstream, owner: Role) -> None:
    """Both schemas have a table `orders`; the service's own path is public."""
    owner.conn.execute("SET search_path = other, shop")
    answer = owner.answer(
        "create_stream_table('shop.ids', 'SELECT id FROM orders', initialize => false)"
    )
    assert answer["action"] == "created"
    assert [one.sources[0].name for one in ms.status()] == ["other.orders"]
    ms.drop_stream_table("shop.ids")
    with pytest.raises(millstream.errors.NoSuchStreamTable):
        ms.app.named("ids")


def test_rights_that_are_lost_while_a_request_waits_are_lost(
    ms: Millstream, operator: Role, totals: str
) -> None:
    id_ = operator.ask("refresh_stream_table('totals')")
    ms.app.conn.execute("REVOKE millstream_operator FROM operator")
    work(ms)
    ms.app.conn.execute("GRANT millstream_operator TO operator")
    assert operator.look(id_)["code"] == "MS004"


def test_who_does_not_own_it_learns_no_value_of_a_row(
    ms: Millstream, owner: Role, operator: Role, totals: str
) -> None:
    with ms.app.conn.transaction(), write_guard.write_permit(ms.app.conn, '"shop"."totals"'):
        ms.app.conn.execute("UPDATE shop.totals SET total = 4711 WHERE region = 'south'")
    shown = operator.answer("verify_stream_table('totals')")
    assert (shown["ok"], shown["sample"]) == (False, [])
    assert "4711" in str(owner.answer("verify_stream_table('totals')")["sample"])
    ms.app.conn.execute("ALTER TABLE shop.totals ADD CONSTRAINT c CHECK (total < 5000)")
    ms.app.conn.execute("INSERT INTO shop.orders VALUES (9, 'south', 9000)")
    told = operator.answer("refresh_stream_table('totals')")
    assert "9" not in told["message"] + told["detail"] + told["hint"]
    assert "9" in str(owner.answer("refresh_stream_table('totals')"))
    ms.app.conn.execute("DELETE FROM shop.orders WHERE id = 9")


# -- the service ends --------------------------------------------------------------------------


def begun(ms: Millstream, id_: int) -> int:
    """The id of a request that is as the next service finds it, after one has begun it and ended."""
    rows.start(ms.app.conn, id_)
    answer.take_up(ms.app)
    [request] = answer.waiting(ms.app.conn)
    return request.id


def test_what_was_created_before_the_service_ended_is_not_created_twice(
    ms: Millstream, owner: Role
) -> None:
    id_ = owner.ask(f"create_stream_table('totals', '{TOTALS}')")
    rows.start(ms.app.conn, id_)
    ms.create_stream_table(
        "shop.totals", TOTALS.replace("orders", "shop.orders"), owner="owner", initialize=False
    )
    # As the request would have recorded it.
    ms.app.conn.execute("UPDATE millstream.stream_tables SET query = %s", (TOTALS,))
    answer.take_up(ms.app)
    work(ms)
    assert owner.look(id_)["report"]["action"] == "FULL"
    assert [one.status for one in ms.status()] == ["ACTIVE"]
    # One that was there before is somebody else's.
    assert owner.answer(f"create_stream_table('totals', '{TOTALS}')")["code"] == "MS201"
    ms.drop_stream_table("shop.totals")


def test_what_was_dropped_before_the_service_ended_is_not_dropped_twice(
    ms: Millstream, owner: Role, totals: str
) -> None:
    id_ = owner.ask("drop_stream_table('totals')")
    begun(ms, id_)
    ms.drop_stream_table("shop.totals")
    ms.create_stream_table(
        "shop.totals", "SELECT id FROM shop.orders", owner="owner", initialize=False
    )
    answer.execute(ms.app, id_)
    assert owner.look(id_)["action"] == "dropped"
    assert len(ms.status()) == 1


# What the service's loop does, in a process that a failpoint kills.
KILLED = """
import sys, millstream
from millstream.service.requests import answer
with millstream.connect(sys.argv[1]) as ms:
    for request in answer.waiting(ms.app.conn):
        answer.execute(ms.app, request.id)
"""


@pytest.mark.parametrize("point", REQUEST_FAILPOINTS)
def test_a_killed_service_leaves_nothing_undone_and_nothing_done_twice(
    service: tuple[Server, Millstream], owner: Role, point: str
) -> None:
    server, ms = service
    command = [sys.executable, "-c", KILLED, server.dsn_for("service", "postgres")]
    calls = {
        "create_stream_table('ids', 'SELECT id FROM orders', initialize => false)": ["ids"],
        "drop_stream_table('ids')": [],
    }
    for call, left in calls.items():
        id_ = owner.ask(call)
        ended = subprocess.run(command, env={**os.environ, VARIABLE: point}, check=False)
        assert ended.returncode == -signal.SIGKILL
        answer.take_up(ms.app)
        work(ms)
        assert owner.look(id_)["action"] in ("created", "dropped")
        assert [one.name for one in ms.status()] == left


def test_a_request_that_is_refreshing_is_taken_up_and_after_three_tries_given_up(
    ms: Millstream, owner: Role, totals: str
) -> None:
    id_ = owner.ask("refresh_stream_table('totals')")
    answer.execute(ms.app, begun(ms, id_))
    assert owner.look(id_)["action"] == "NO_DATA"
    id_ = owner.ask("refresh_stream_table('totals')")
    for _ in range(answer.MOST_TRIES):
        rows.start(ms.app.conn, id_)
        answer.take_up(ms.app)
    assert answer.waiting(ms.app.conn) == []
    assert owner.look(id_)["code"] == "MS504"


def test_a_request_is_done_once(ms: Millstream, owner: Role, totals: str) -> None:
    id_ = owner.ask("refresh_stream_table('totals')")
    [request] = answer.waiting(ms.app.conn)
    for _ in range(2):
        answer.execute(ms.app, request.id)
    refreshed = [entry for entry in ms.history("shop.totals") if entry.initiated_by == "MANUAL"]
    assert (len(refreshed), owner.look(id_)["action"]) == (1, "NO_DATA")


def test_a_stream_table_that_another_process_works_on_is_busy_and_one_that_this_service_works_on_is_waited_for(
    service: tuple[Server, Millstream], owner: Role, totals: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, ms = service
    monkeypatch.setattr(refresher, "WAITING", Patience(seconds=0.0))
    table = ms.app.named("shop.totals")
    with (
        millstream.connect(server.dsn_for("service", "postgres")) as other,
        other.app.mutex.stream_tables([table.id]),
    ):
        assert owner.answer("refresh_stream_table('totals')")["code"] == "MS401"
        id_ = owner.ask("refresh_stream_table('totals')")
        ms.app._shared.held.add(table.id)
        try:
            work(ms)
        finally:
            ms.app._shared.held.discard(table.id)
        status = "SELECT status FROM millstream.own_requests WHERE id = %s"
        assert owner.conn.execute(status, (id_,)).fetchall() == [("WAITING",)]
    work(ms)
    assert owner.look(id_)["action"] == "NO_DATA"


def test_a_former_leader_answers_nothing(ms: Millstream, owner: Role, totals: str) -> None:
    id_ = owner.ask("refresh_stream_table('totals')")
    [request] = answer.waiting(ms.app.conn)
    ms.app.epoch = Epoch(4711)
    try:
        with pytest.raises(Deposed):
            answer.execute(ms.app, request.id)
    finally:
        ms.app.epoch = None
    assert owner.conn.execute(
        "SELECT status FROM millstream.own_requests WHERE id = %s", (id_,)
    ).fetchall() == [("WAITING",)]
    work(ms)


MORE = "create_stream_table('more', 'SELECT id FROM orders', initialize => false)"


@pytest.mark.parametrize(
    ("call", "afterwards"),
    [
        (
            "drop_stream_table('totals')",
            lambda ms: ms.create_stream_table(
                "shop.totals", "SELECT id FROM shop.orders", owner="owner", initialize=False
            ),
        ),
        (MORE, lambda ms: ms.drop_stream_table("shop.more")),
        (
            "alter_stream_table('totals', schedule => '7m')",
            lambda ms: ms.alter_stream_table("shop.totals", schedule="8m"),
        ),
    ],
    ids=["drop", "create", "alter"],
)
def test_a_former_leader_undoes_nothing_that_came_after_it(
    service: tuple[Server, Millstream],
    spark: SparkSession,
    owner: Role,
    totals: str,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    afterwards: Callable[[Millstream], object],
) -> None:
    """The bug: it stood still after it had begun a drop, and later dropped what was created under
    the same name.
    """
    server, ms = service
    id_ = owner.ask(call)
    [request] = answer.waiting(ms.app.conn)
    left = list[tuple[int, str, str]]()

    def described() -> list[tuple[int, str, str]]:
        return sorted((one.id, one.query, one.schedule) for one in stream_tables.every(ms.app.conn))

    def take_over(point: str) -> None:
        monkeypatch.undo()
        with millstream.connect(server.dsn_for("service", "postgres"), spark=spark) as other:
            other.app.epoch = leadership.take_over(other.app.conn, uuid4())
            answer.take_up(other.app)
            work(other)
            afterwards(other)
        left.extend(described())

    ms.app.epoch = leadership.take_over(ms.app.conn, uuid4())
    monkeypatch.setattr(answer, "failpoint", take_over)
    try:
        with pytest.raises(Deposed):
            answer.execute(ms.app, request.id)
    finally:
        ms.app.epoch = None
    assert owner.look(id_)["action"] in ("dropped", "created", "altered")
    assert described() == left


def test_old_answers_are_removed(ms: Millstream, owner: Role, totals: str) -> None:
    old, new = (owner.ask("refresh_stream_table('totals')") for _ in range(2))
    work(ms)
    ms.app.conn.execute(
        "UPDATE millstream.requests SET finished_at = finished_at - interval '31 days' WHERE id = %s",
        (old,),
    )
    answer.prune(ms.app)
    left = {id_ for (id_,) in owner.conn.execute("SELECT id FROM millstream.own_requests")}
    assert new in left
    assert old not in left
