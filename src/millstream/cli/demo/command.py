"""The demo from beginning to end: set up, keep fresh under traffic, prove.

Without a terminal and without a length it would run for ever unseen; there it ends by itself, too.
"""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax

from millstream.bundled.shop import Size, Traffic, open_shop, rows_by_table
from millstream.cli.commands.verify import verdict
from millstream.cli.demo.board import Board
from millstream.cli.demo.loop import INTERVAL, keep_fresh
from millstream.cli.demo.steps import ProgressSteps
from millstream.cli.demo.story import CHAPTERS
from millstream.cli.entry_points import Doors
from millstream.cli.exit_codes import Exit
from millstream.cli.options import AsJson
from millstream.cli.output import err, number, out, print_json
from millstream.postgres.connection import connect
from millstream.settings import Settings

if TYPE_CHECKING:
    from millstream.client import Millstream
    from millstream.service.verify import Verification

EXAMPLE = "millstream demo --seconds 20"

SIZE = Size()
LENGTH_WITHOUT_TERMINAL = 30.0

WELCOME = """\
A shop sells; its application writes to four plain PostgreSQL tables. Millstream
keeps three SQL views over them fresh. It does not run the views again: it reads
what changed, and the rows that this can meet. Changes are captured by triggers at
first; then the sources are handed over to the log, and writers pay no more for it.
"""


def run(
    ctx: typer.Context,
    seconds: Annotated[
        float | None,
        typer.Option(envvar="DEMO_SECONDS", min=1, help="End after so long by itself; otherwise Ctrl-C ends it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """See it at work: a private PostgreSQL, a shop with live traffic, three stream tables over it.

    At the end each stream table is compared with its query, while the traffic goes on. Ends with exit
    code 1 if one differs.
    """
    # By default SIGTERM would end us at once and leave the private server running.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    console = err() if as_json else out()
    length = seconds if seconds or console.is_terminal else LENGTH_WITHOUT_TERMINAL
    board, results = _play(ctx.obj, console, length)
    if as_json:
        print_json(
            {"verifications": results, "traffic": board.traffic(), "captured": board.modes, "seconds": board.seconds}
        )
    else:
        _prove(console, board, results)
    if not all(result.ok for result in results):
        raise typer.Exit(Exit.CHECK_FAILED)


def _play(doors: Doors, console: Console, length: float | None) -> tuple[Board, list[Verification]]:
    """All of the demo but its last words."""
    console.print(WELCOME, markup=False)
    steps = ProgressSteps(console)
    with ExitStack() as stack:
        with steps.step("start a private PostgreSQL server"):
            server = stack.enter_context(doors.embedded())
            reader = stack.enter_context(connect(server.dsn, application_name="shop reader"))
        with steps.step("open the shop"):
            open_shop(reader, SIZE)
        with steps.step("install Millstream"):
            settings = Settings(auto_replica_identity=True)
            client = stack.enter_context(doors.connect(server.dsn, settings=settings, progress=steps.report))
        _create(client, steps, console)
        traffic = Traffic(server.dsn, SIZE)
        stack.callback(traffic.stop)
        traffic.start()
        board = Board(lambda: traffic.count, rows_by_table(reader), length=length)
        keep_fresh(client, reader, board, console)
        with steps.step("compare each with its query, while the shop goes on selling"):
            results = [client.verify(chapter.name) for chapter in CHAPTERS]
    return board, results


def _create(client: Millstream, steps: ProgressSteps, console: Console) -> None:
    """Create the three stream tables; the first one waits for Spark."""
    for chapter in CHAPTERS:
        waits = " (and start Spark, some ten seconds)" if chapter is CHAPTERS[0] else ""
        with steps.step(f"create stream table {chapter.name}{waits}"):
            client.create_stream_table(chapter.name, chapter.query, schedule=f"{INTERVAL * 1000:.0f}ms")
        console.print(f"  {chapter.shows}", style="dim", markup=False)
        # As Text: a Syntax or a Padding would fill its lines up with blanks.
        highlighted = Syntax("", "sql", background_color="default").highlight(indent(chapter.query, "    "))
        console.print(highlighted)


def _prove(console: Console, board: Board, results: list[Verification]) -> None:
    """The proof, and what it cost."""
    console.print()
    for result in results:
        console.print(verdict(result))
    count, lines = board.traffic(), board.lines.values()
    refreshes, read = sum(line.refreshes for line in lines), sum(line.rows_read for line in lines)
    console.print(
        f"\nIn {board.seconds:.0f} s the shop committed {number(count.committed)} transactions that changed "
        f"{number(count.rows)} rows, and rolled back {number(count.rolled_back)}. "
        f"{number(refreshes)} refreshes read {number(read)} rows; "
        f"running the queries again each time would have read {number(board.read_anew())}.",
        markup=False,
    )
