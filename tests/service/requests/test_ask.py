"""Commands ask the service where one runs, and get the same results and errors as from the Python
API.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from millstream import Millstream
from millstream.catalog.processes import leadership
from millstream.cli.app import app as program
from millstream.cli.entry_points import Doors
from millstream.errors import NoSuchStreamTable, RequestNotDone, Volatile
from millstream.postgres.connection import Connection
from millstream.service.requests import answer
from millstream.service.requests.ask import ServiceClient, asking

Open = Callable[[], Connection]
TOTALS = "SELECT region, sum(amount) AS total FROM orders GROUP BY region"


@pytest.fixture
def service(ms: Millstream, another: Open, conn: Connection) -> Iterator[Millstream]:
    """A service as small as can be: it has registered, and executes requests."""
    conn.execute("CREATE TABLE orders (id int PRIMARY KEY, region text, amount int)")
    conn.execute("INSERT INTO orders VALUES (1, 'north', 10), (2, 'south', 20)")
    registered, ended = another(), threading.Event()
    backend = registered.info.backend_pid
    leadership.register(registered, leadership.Registration(uuid4(), 1, "here", "0", backend))

    def work() -> None:
        while not ended.wait(0.01):
            for request in answer.waiting(registered):
                answer.execute(ms.app, request.id)

    working = threading.Thread(target=work)
    working.start()
    yield ms
    ended.set()
    working.join()


def test_a_client_of_the_service_does_what_the_api_does(
    service: Millstream, database: str, conn: Connection
) -> None:
    with asking(database) as client:
        assert client is not None
        created = client.create_stream_table("totals", TOTALS, schedule="manual")
        assert created is not None
        assert (created.action, created.initiated_by, created.rows_inserted) == (
            "FULL",
            "INITIAL",
            2,
        )
        conn.execute("INSERT INTO orders VALUES (3, 'north', 5)")
        refreshed = client.refresh("totals")
        assert refreshed.action == "DIFFERENTIAL"
        [recorded] = client.history("totals", n=1)
        assert (recorded.frontier, recorded.data_timestamp) == (
            refreshed.frontier,
            refreshed.data_timestamp,
        )
        verified = client.verify("public.totals")
        assert (verified.ok, verified.rows, verified.name) == (True, 2, "totals")
        client.alter_stream_table("totals", schedule="5m")
        assert [(one.schema, one.name) for one in client.status()] == [("public", "totals")]
        client.drop_stream_table("totals")
        assert client.status() == []
        assert client.create_stream_table("totals", TOTALS, initialize=False) is None


def test_errors_of_the_service_are_of_their_class(service: Millstream, database: str) -> None:
    with asking(database) as client:
        assert client is not None
        with pytest.raises(Volatile) as refused:
            client.create_stream_table("x", "SELECT random() AS r FROM orders")
        assert refused.value.hint
        assert refused.value.position == 8
        # Said at once, by the check of the request.
        with pytest.raises(NoSuchStreamTable):
            client.refresh("nothing")


def test_where_no_service_runs_there_is_none_to_ask(database: str, ms: Millstream) -> None:
    with asking(database) as client:
        assert client is None


def test_where_nothing_is_installed_there_is_none_to_ask(database: str) -> None:
    with asking(database) as client:
        assert client is None


def test_a_service_that_goes_away_is_not_waited_for(ms: Millstream, conn: Connection) -> None:
    with pytest.raises(RequestNotDone) as raised:
        ServiceClient(conn, patience=0).create_stream_table("totals", TOTALS)
    assert "--direct" in raised.value.hint


# -- commands --------------------------------------------------------------------------------


class NotAsked(Exception):
    """Raised where a command works itself."""


def not_asked(*_: object, **__: object) -> NoReturn:
    raise NotAsked


def line(database: str, *arguments: str) -> tuple[int, str]:
    """Run a command that can do nothing itself."""
    doors = Doors(
        connect=not_asked, embedded=not_asked, doctor=not_asked, asking=asking, overviews=not_asked
    )
    ended = CliRunner().invoke(
        program, list(arguments), env={"MILLSTREAM_DSN": database}, obj=doors
    )
    return ended.exit_code, ended.stdout


def test_commands_ask_the_service(service: Millstream, database: str) -> None:
    created = line(database, "create", "totals", TOTALS, "--schedule", "manual", "--json")
    assert (created[0], json.loads(created[1])["report"]["action"]) == (0, "FULL")
    code, text = line(database, "refresh", "totals", "--json")
    assert (code, json.loads(text)[0]["action"]) == (0, "NO_DATA")
    code, text = line(database, "verify", "--all", "--json")
    assert (code, json.loads(text)[0]["ok"]) == (0, True)
    assert line(database, "alter", "totals", "--schedule", "5m")[0] == 0
    assert service.status()[0].schedule == "5m"
    assert line(database, "refresh", "nothing")[0] == 5
    code, _ = line(database, "drop", "totals", "--direct")
    assert (code, len(service.status())) == (5, 1)
    assert line(database, "drop", "totals")[0] == 0
    assert service.status() == []
