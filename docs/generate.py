"""Print docs/reference/ from the code: SQL, SQL functions, commands, settings, errors, failpoints.

    python -m docs.generate        writes the pages; tests/test_docs.py checks that they are current

Nothing in these pages is written by hand: what they say of a command is its own help.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from docs.alerts import ALERTS
from docs.capabilities import KEPT, KINDS, REFUSED
from docs.monitoring import MONITORS, Monitor
from docs.setting_tests import SHOWN_BY
from docs.sql_functions import SQL_FUNCTIONS, SqlFunction
from docs.tasks import TASKS
from pydantic.fields import FieldInfo

from millstream import errors
from millstream.cli.app import COMMANDS, app, name_of
from millstream.cli.exit_codes import MEANINGS, exit_code
from millstream.observe import failpoint
from millstream.refresh.reasons import ACTIONS, REASONS, STATUSES
from millstream.settings import HARMLESS, NOT_FROM_DATABASE, OTHER_VARIABLES, PREFIX, Settings
from millstream.testing.application import QUERIES

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Printed from the code by docs/generate.py; change it there. -->"


def pages() -> dict[str, str]:
    """Every page of the reference, by file name."""
    return {
        "tasks.md": tasks(),
        "sql.md": sql(),
        "sql-functions.md": sql_functions(),
        "commands.md": commands(),
        "settings.md": settings(),
        "errors.md": error_codes(),
        "failpoints.md": failpoints(),
        "history.md": history(),
        "alerts.md": alerts(),
        "monitoring.md": monitoring(),
    }


# -- SQL -------------------------------------------------------------------------------------


def sql() -> str:
    """Print which SQL is supported, how, at what cost; and which is refused."""
    head = (
        "Which SQL a stream table may have. Every example is planned by the test suite over the tables of\n"
        "`tests/compiler/conftest.py`: those under *Supported* are accepted and become those blocks, those\n"
        "under *Refused* are refused with that code. The pages of the [operators](../operators/README.md) explain more."
    )
    blocks = "A query becomes a chain of blocks, innermost first. The rows of the last one are the stream table."
    kinds = table(("block", "what it does"), ((f"`{kind}`", told) for kind, told in KINDS.items()))
    kept = (
        (
            one.construct,
            f"`{one.example}`",
            ", ".join(one.blocks),
            one.strategy,
            one.cost,
            one.limits,
        )
        for one in KEPT
    )
    refused = ((one.construct, f"`{one.example}`", f"`{one.code}`", one.instead) for one in REFUSED)
    also = (
        "A stream table may read others, like any table: those that are due are refreshed in one cut, each\n"
        "after those that it reads."
    )
    return page(
        "SQL",
        head,
        section("Blocks", blocks, kinds),
        section(
            "Supported",
            table(("construct", "example", "blocks", "strategy", "cost", "limits"), kept),
            also,
        ),
        section("Refused", table(("construct", "example", "code", "instead"), refused)),
    )


def tasks() -> str:
    """Print what people do with SQL, with queries that are kept."""
    head = (
        "What people do with SQL, and queries that do it: paste one of yours. The suite keeps every query\n"
        "of this page as a stream table, over\n"
        "[these tables](../../src/millstream/testing/application/schema.sql), changes the tables, and\n"
        "compares. `make soak` does so with all two hundred that they are taken from. By construct:\n"
        "[SQL](sql.md)."
    )
    sections = (
        section(task.name, task.told, *(f"```sql\n{QUERIES[name]}\n```" for name in task.queries))
        for task in TASKS
    )
    return page("What SQL is kept", head, *sections)


# -- history ---------------------------------------------------------------------------------


def history() -> str:
    """What the entries of the history tell, and every reason code."""
    head = (
        "Each refresh has an entry in `millstream.refresh_history`: `millstream history NAME`, `ms.history(name)`,\n"
        "`millstream.get_refresh_history(name)`. A scheduled refresh that finds no change has none: it is counted in\n"
        "`millstream.stream_tables.no_data_refreshes`. Entries older than `history_retention` are removed;\n"
        "the last one of each stream table stays."
    )
    failed = (
        "A refresh that failed, or was skipped or cancelled, has the action that was attempted, and as its reason the\n"
        "code of its [error](errors.md). Where nothing was attempted, the action is `SKIP`: the query could not be\n"
        "planned, a source was locked, something that it reads has changed."
    )
    left = (
        "An entry `RUNNING` is committed before the refresh changes anything, and known by the transaction of the\n"
        "refresh. If a process is killed, its entry becomes `FAILED` with reason `MS410` when a process of Millstream\n"
        "next refreshes; if the refresh had been committed, its entry `COMPLETED` is there and the other one goes."
    )
    return page(
        "The history of refreshes",
        head,
        section(
            "Status",
            table(("status", "meaning"), ((f"`{one}`", told) for one, told in STATUSES.items())),
            left,
        ),
        section(
            "Action",
            table(("action", "meaning"), ((f"`{one}`", told) for one, told in ACTIONS.items())),
        ),
        section(
            "Reason",
            table(("code", "meaning"), ((f"`{one}`", told) for one, told in REASONS.items())),
            failed,
        ),
    )


# -- monitoring ------------------------------------------------------------------------------


def monitoring() -> str:
    """What a monitor can ask by SQL."""
    head = (
        "Functions and views of schema `millstream` for members of `millstream_reader` and `millstream_operator`.\n"
        "They show no value of a row: queries, plans and texts of errors, which may contain\n"
        "values, are shown only to roles with the privileges of the stream table's owner. A name is parsed as in\n"
        "SQL; one without a schema is looked up along the caller's `search_path`. See also\n"
        "[`millstream top`](commands.md), and what happens is "
        "told by [alerts](alerts.md)."
    )
    listed = ((f"[{one.name}](#{one.name})", one.meaning, _test_link(one.test)) for one in MONITORS)
    return page(
        "Monitoring",
        head,
        table(("name", "what it shows", "test"), listed),
        *map(_monitor, MONITORS),
    )


def _monitor(one: Monitor) -> str:
    columns = ((f"`{name}`", one.column_meaning(name)) for name in one.columns)
    return section(
        one.name,
        f"```sql\n{one.call};\n```",
        table(("column", "meaning"), columns) if one.columns else "",
    )


def _test_link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{name}](../../{file})"


# -- alerts ----------------------------------------------------------------------------------


def alerts() -> str:
    """When each alert is sent, and what it tells."""
    head = (
        "`LISTEN millstream_alert` returns alerts as JSON: `alert` is the kind, the other keys are facts\n"
        "about it. An alert is part of a transaction, so its facts are committed. One that would be longer than 8000\n"
        "bytes has shortened texts, and the key `shortened`."
    )
    rows = ((f"`{one.kind}`", one.when, one.facts, _shown_by(one.test)) for one in ALERTS)
    test = _shown_by(
        "tests/postgres/test_notifications.py::test_a_transition_names_the_source_and_both_modes"
    )
    transitions = (
        "`LISTEN millstream_cdc_transition` tells of each source whose capture mode has changed: `source`,\n"
        f"`old_mode`, `new_mode` (TRIGGER, TRANSITIONING or WAL) and `slot`; shown by {test}."
    )
    return page(
        "Alerts", head, table(("alert", "sent when", "facts", "shown by"), rows), transitions
    )


def _shown_by(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{name}](../../{file})"


# -- commands --------------------------------------------------------------------------------


def commands() -> str:
    """One section per command, and the exit codes."""
    head = [
        "Every command that works on a database takes it from `--dsn` or from `MILLSTREAM_DSN`. Tables are for",
        "people; `--json` prints one JSON document on stdout, errors too, on stderr.",
    ]
    codes = table(
        ("exit code", "meaning"), ((str(int(code)), meaning) for code, meaning in MEANINGS.items())
    )
    return page(
        "Commands", "\n".join(head), *map(command_section, COMMANDS), section("Exit codes", codes)
    )


def command_section(command: ModuleType) -> str:
    """What a command's own help says."""
    name = name_of(command)
    # Typer's command objects have no public type of their own.
    made: Any = typer.main.get_command(app)
    # Arguments first, in their order; options after them.
    given = sorted(made.commands[name].params, key=lambda one: one.param_type_name != "argument")
    options = table(("argument or option", "meaning", "default"), map(parameter, given))
    example = f"```sh\n{command.EXAMPLE}\n```"
    return section(
        f"millstream {name}",
        inspect.cleandoc(command.run.__doc__ or ""),
        options,
        f"Example:\n\n{example}",
    )


def parameter(one: Any) -> tuple[str, str, str]:
    """A row of the table of arguments and options."""
    if one.param_type_name == "argument":
        shown = (one.metavar or one.name).upper() + ("..." if one.nargs == -1 else "")
        return f"`{shown}`", one.help or "", "required" if one.required else ""
    names = ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
    told = (one.help or "") + (f" Or `{one.envvar}` in the environment." if one.envvar else "")
    return names, told, "required" if one.required else default_of(one.default)


def default_of(value: object) -> str:
    """A default as the user would type it; a flag that is off has none worth printing."""
    return (
        ""
        if value is None or value is False
        else f"`{str(value).lower() if value is True else value}`"
    )


# -- settings --------------------------------------------------------------------------------


def settings() -> str:
    """The settings, and the variables that are not settings."""
    stored = ", ".join(f"`{name}`" for name in NOT_FROM_DATABASE)
    harmful = ", ".join(f"`{name}`" for name in Settings.model_fields if name not in HARMLESS)
    head = (
        "Set in code (`connect(settings=Settings(...))`), in the environment, in the file `millstream.toml` of the\n"
        "working directory, or in the database; the first that says something wins. An unknown name or a bad value is\n"
        "refused (MS005), by the database too.\n\n"
        "In the database, settings are rows of `millstream.settings`, written by `millstream settings set NAME VALUE`\n"
        "or by SQL of the role that owns the catalog. A running service takes over a change at once; every other\n"
        f"process when it connects. {stored} cannot be set there: its\n"
        "owner need not be trusted on the machine that the service runs on.\n\n"
        "A file of the working directory that somebody else could have written (another user's, or one that others\n"
        f"may write to) is refused if it sets {harmful}.\n"
        "Name it in `MILLSTREAM_CONFIG` if you want what it says."
    )
    rows = (setting_row(name, field) for name, field in Settings.model_fields.items())
    other = ((f"`{name}`", meaning) for name, meaning in OTHER_VARIABLES.items())
    return page(
        "Settings",
        head,
        table(("setting", "environment", "default", "meaning", "shown by"), rows),
        section("Other variables", table(("variable", "meaning"), other)),
    )


def setting_row(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return a setting's names, its default as written in the file, its meaning, and the test that
    shows it.
    """
    # Built without reading the environment and the file.
    default = Settings.model_construct().model_dump()[name]
    variable, shown_by = f"`{PREFIX}{name.upper()}`", _shown_by(SHOWN_BY[name])
    return f"`{name}`", variable, f"`{default}`", field.description or "", shown_by


# -- SQL functions ---------------------------------------------------------------------------


def sql_functions() -> str:
    """Every function and procedure for users."""
    head = (
        "Functions and procedures of schema `millstream`, for users of the database. Operators are members of\n"
        "the role `millstream_operator`, which an administrator creates; roles with the privileges of the\n"
        "catalog's owner may call all of them. A function that requests work records a request, wakes the\n"
        "service and returns the\n"
        "request's id; it warns if no service runs. The request is executed with the privileges of the calling\n"
        "role. Names are looked up along the `search_path` of the calling session."
    )
    example = (
        "```sql\n"
        "CALL millstream.wait_for(millstream.create_stream_table(\n"
        "    'totals', 'SELECT region, sum(amount) AS total FROM orders GROUP BY region', schedule => '1s'\n"
        "));\n"
        "```"
    )
    waiting = (
        "`wait_for` commits, so it is called outside a transaction. Errors have the codes of [this list](errors.md)\n"
        "as their SQLSTATE. Each role sees its own requests and their answers in the view `millstream.own_requests`,\n"
        "until they are older than `history_retention`.\n\n"
        "`wait_visible` commits, too. It returns when the stream table, and those that it reads, contain\n"
        "every change that the snapshot `seen` sees: by default all that was committed before the call, by\n"
        "the caller and by others. It requests no refresh: the schedule decides how long it takes. If a\n"
        "source is captured from WAL and nothing changes there, it has the service record the position of its\n"
        "reader, which takes about a second. A given snapshot must have been taken outside of the transaction\n"
        "that writes, because PostgreSQL's snapshots do not say whether they see their own transaction."
    )
    rows = map(sql_function_row, SQL_FUNCTIONS)
    return page(
        "SQL functions",
        head,
        example,
        waiting,
        table(("function", "what it does", "who may", "test"), rows),
    )


def sql_function_row(one: SqlFunction) -> tuple[str, str, str, str]:
    """A function: how it is called, what it does, who may call it, which test shows it."""
    file, _, name = one.test.partition("::")
    return f"`{one.name}({one.arguments})`", one.meaning, one.allowed, f"[{name}](../../{file})"


# -- errors ----------------------------------------------------------------------------------


ERROR_COLUMNS = ("code", "class", "what it means", "retryable", "exit code")


def error_codes() -> str:
    """Every error class, by code."""
    head = (
        "Every error is a `MillstreamError` with `code`, `message`, `detail`, `hint`, and its facts as attributes.\n"
        "After a retryable error, trying again can succeed."
    )
    kinds = sorted(subclasses(errors.MillstreamError), key=lambda kind: kind.code)
    families = (
        f"```\n{textwrap.dedent(inspect.cleandoc(errors.__doc__ or '').split(chr(10) * 2)[2])}\n```"
    )
    return page("Errors", head, families, table(ERROR_COLUMNS, map(error_row, kinds)))


def error_row(kind: type[errors.MillstreamError]) -> tuple[str, str, str, str, str]:
    """An error class: its code, its name, its meaning, and what a command makes of it."""
    again = "yes" if kind.retryable else ""
    return (
        f"`{kind.code}`",
        f"`{kind.__name__}`",
        first_line(kind),
        again,
        str(int(exit_code(kind("")))),
    )


def subclasses(kind: type[errors.MillstreamError]) -> Iterator[type[errors.MillstreamError]]:
    """All classes below one, to any depth; those of the package, not a test's own."""
    for below in kind.__subclasses__():
        if below.__module__.startswith(errors.__name__ + "."):
            yield below
            yield from subclasses(below)


# -- failpoints ------------------------------------------------------------------------------


def failpoints() -> str:
    """The places where a test can kill a refresh."""
    told = inspect.cleandoc(failpoint.__doc__ or "").split("\n\n")
    listed = "\n".join(f"{number}. `{name}`" for number, name in enumerate(failpoint.ALL, 1))
    return page("Failpoints", told[0], f"```\n{inspect.cleandoc(told[1])}\n```", told[2], listed)


# -- Markdown --------------------------------------------------------------------------------


def page(title: str, *parts: str) -> str:
    """A whole page."""
    return "\n\n".join([f"# {title}", NOTE, *parts]) + "\n"


def section(title: str, *parts: str) -> str:
    """A part of a page, with a heading."""
    return "\n\n".join([f"## {title}", *(part for part in parts if part)])


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def first_line(thing: object) -> str:
    """The first line of a docstring."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def main() -> None:
    """Write the pages."""
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
