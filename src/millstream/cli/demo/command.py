"""The demo from beginning to end: start the service, create stream tables, watch them under
traffic, verify them.

Without a terminal, the demo ends by itself even if no length is given.
"""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from millstream.bundled.shop import Size, Traffic, open_shop, rows_by_table
from millstream.cli.commands.verify import verdict
from millstream.cli.demo import service
from millstream.cli.demo.board import Board
from millstream.cli.demo.sql_door import STATUS, answer, ask, status_table
from millstream.cli.demo.steps import ProgressSteps
from millstream.cli.demo.story import CHAPTERS
from millstream.cli.demo.watch import follow, look, watch
from millstream.cli.entry_points import Doors
from millstream.cli.exit_codes import Exit
from millstream.cli.options import AsJson
from millstream.cli.output import err, number, out, print_json
from millstream.postgres.connection import Connection, connect

if TYPE_CHECKING:
    from millstream.service.verification.verification import Verification

EXAMPLE = "millstream demo --seconds 20"

SIZE = Size()
LENGTH_WITHOUT_TERMINAL = 30.0

WELCOME = """\
A shop sells; its application writes to four ordinary PostgreSQL tables. Next to the
database runs the service, `millstream run`, which keeps three SQL views over them
fresh. It does not run the views again: it reads what changed and the rows that
can join it. Everything you see here is requested and answered by SQL.

Changes are captured by triggers at first. Then the sources move to WAL capture,
which costs writers nothing more. In the middle a table is altered.
"""


@dataclass
class _Outcome:
    """The results of the demo."""

    board: Board
    # Any: JSON documents, the answers of the service.
    verifications: list[dict[str, Any]]
    status: Table


def run(
    ctx: typer.Context,
    seconds: Annotated[
        float | None,
        typer.Option(
            envvar="DEMO_SECONDS",
            min=1,
            help="Stop after this time. Without it, Ctrl-C stops the demo.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a demonstration: a private PostgreSQL, a shop with live traffic, and the service with
    three stream tables.

    The stream tables are created, watched and verified by SQL. While the shop sells, a table that
    they read is altered. At the end each stream table is compared with its query, while the traffic
    goes on. Ends with exit code 1 if one differs.
    """
    # By default SIGTERM would end this process at once and leave the private server and the service
    # running.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    console = err() if as_json else out()
    length = seconds if seconds or console.is_terminal else LENGTH_WITHOUT_TERMINAL
    outcome = _play(ctx.obj, console, length)
    if as_json:
        print_json(_document(outcome))
    else:
        _prove(console, outcome)
    if not all(one["ok"] for one in outcome.verifications):
        raise typer.Exit(Exit.CHECK_FAILED)


def _play(doors: Doors, console: Console, length: float | None) -> _Outcome:
    """Run the demo up to the final summary."""
    console.print(WELCOME, markup=False)
    steps = ProgressSteps(console)
    with ExitStack() as stack:
        with steps.step("start a private PostgreSQL server"):
            server = stack.enter_context(doors.embedded())
            reader = stack.enter_context(connect(server.dsn, application_name="shop reader"))
        at_work = stack.enter_context(
            service.running(server.dsn, server.directory / "service.log", console)
        )
        with steps.step("open the shop, and start the service: millstream run"):
            open_shop(reader, SIZE)
            at_work.wait_until_running(reader)
        _create(reader, at_work, steps, console)
        traffic = Traffic(server.dsn, SIZE)
        stack.callback(traffic.stop)
        traffic.start()
        board = Board(lambda: traffic.count, rows_by_table(reader), length=length)
        watch(reader, board, console, at_work.check)
        console.print(
            "\nEach is compared with its query at one moment, while the shop goes on selling."
        )
        verifications = [_verify(reader, at_work, steps, chapter.name) for chapter in CHAPTERS]
        look(reader, board)
        follow(reader, board, console)
        return _Outcome(board, verifications, status_table(reader))


def _create(
    reader: Connection, at_work: service.DemoService, steps: ProgressSteps, console: Console
) -> None:
    """Create the three stream tables; the first one waits for Spark."""
    for chapter in CHAPTERS:
        console.print(f"\n{chapter.name}: {chapter.shows}", markup=False)
        _show(console, f"{chapter.statement};")
        request = ask(reader, chapter.statement)
        waits = "  (the service starts Spark, some ten seconds)" if chapter is CHAPTERS[0] else ""
        with steps.step(f"CALL millstream.wait_for({request});{waits}"):
            answer(reader, request, at_work.check)


def _verify(
    reader: Connection, at_work: service.DemoService, steps: ProgressSteps, name: str
) -> dict[str, Any]:
    statement = f"SELECT millstream.verify_stream_table('{name}')"
    request = ask(reader, statement)
    with steps.step(f"{statement}; CALL millstream.wait_for({request});"):
        return answer(reader, request, at_work.check)


def _show(console: Console, statement: str) -> None:
    # Text, since Syntax and Padding would fill lines with blanks.
    console.print(
        Syntax("", "sql", background_color="default").highlight(indent(statement, "    ")), end=""
    )


def _document(outcome: _Outcome) -> dict[str, object]:
    board, alteration = outcome.board, outcome.board.alteration
    return {
        "verifications": outcome.verifications,
        "refreshes": {name: line.refreshes for name, line in board.lines.items()},
        "traffic": board.traffic(),
        "captured": board.modes,
        "altered": None
        if alteration is None
        else {"by": alteration.statement, "is_followed": alteration.is_followed},
        "seconds": board.seconds,
    }


def _prove(console: Console, outcome: _Outcome) -> None:
    """Print the verifications and the costs."""
    board = outcome.board
    console.print()
    for one in outcome.verifications:
        console.print(verdict(_verification(one)))
    console.print()
    _show(console, f"{STATUS};")
    console.print(outcome.status)
    count, lines = board.traffic(), board.lines.values()
    refreshes, read = sum(line.refreshes for line in lines), sum(line.rows_read for line in lines)
    console.print(
        f"\nIn {board.seconds:.0f} s the shop committed {number(count.committed)} transactions that changed "
        f"{number(count.rows)} rows, and rolled back {number(count.rolled_back)}. "
        f"{number(refreshes)} refreshes read {number(read)} rows; "
        f"running the queries again each time would have read {number(board.read_anew())}.",
        markup=False,
    )


def _verification(document: dict[str, Any]) -> Verification:
    # Imported here, so that `millstream --help` does not wait for modules that only some commands
    # need.
    from millstream.service.verification.verification import Verification

    return Verification.from_dict(document)
