"""Docs that cannot lie: the reference is what the code prints, commands exist, links lead
somewhere.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard, get_args

import pytest
import typer

from millstream import errors
from millstream.catalog.installation import roles
from millstream.cli.app import COMMANDS, app, name_of
from millstream.postgres.notifications import Alert
from millstream.settings import Settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MIGRATIONS = sorted((ROOT / "src" / "millstream" / "catalog" / "migrations").glob("*.sql"))
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

# Code in backticks is no link.
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def generator() -> Any:
    """The module docs/generate.py."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(path.name for path in (DOCS / "reference").iterdir()))
def test_the_committed_reference_is_what_the_code_prints(name: str) -> None:
    printed = generator().pages()[name]
    assert (DOCS / "reference" / name).read_text() == printed, "run: make docs"


def test_the_reference_has_no_page_that_the_code_does_not_print() -> None:
    assert {path.name for path in (DOCS / "reference").iterdir()} == set(generator().pages())


def test_every_function_for_users_has_its_row_and_a_test_that_shows_it() -> None:
    functions = importlib.import_module("docs.sql_functions").SQL_FUNCTIONS
    missing = [
        one.name
        for one in functions
        if f"def {one.test.partition('::')[2]}(" not in _text(one.test)
    ]
    assert missing == []
    helpers = {"request", "raise_answer", "is_visible", "is_captured", "service_is_running"}
    asked = {*roles.ROUTINES["operator"], *roles.ROUTINES["owner"]} - helpers
    monitoring = importlib.import_module("docs.monitoring")
    described = {one.name for one in (*functions, *monitoring.MONITORS)} | set(monitoring.HELPERS)
    text = "\n".join(path.read_text() for path in MIGRATIONS)
    made = {
        name
        for name in asked
        if re.search(rf"^CREATE (FUNCTION|PROCEDURE) millstream.{name}\(", text, re.M)
    }
    assert made - described == set()


def _text(test: str) -> str:
    return (ROOT / test.partition("::")[0]).read_text()


def test_no_two_errors_have_the_same_code() -> None:
    codes = Counter(error.code for error in vars(errors).values() if _is_error(error))
    assert [code for code, count in codes.items() if count > 1] == []


def _is_error(value: object) -> TypeGuard[type[errors.MillstreamError]]:
    return isinstance(value, type) and issubclass(value, errors.MillstreamError)


@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_every_command_has_its_section_and_its_example(command: Any) -> None:
    page = (DOCS / "reference" / "commands.md").read_text()
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    assert command.EXAMPLE in sections[f"millstream {name_of(command)}"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def shell_lines() -> Iterator[Any]:
    """Every call of millstream in a shell block of the docs."""
    for page in PAGES:
        for block in SHELL.findall(page.read_text()):
            for line in block.splitlines():
                if line.startswith("millstream "):
                    yield pytest.param(line, id=f"{page.stem}: {line[:40]}")


@pytest.mark.parametrize("line", list(shell_lines()))
def test_every_command_line_in_the_docs_is_understood(line: str) -> None:
    name, *arguments = shlex.split(line, comments=True)[1:]
    program: Any = typer.main.get_command(app)
    needs_database = any(
        "--dsn" in one.opts and one.required for one in program.commands[name].params
    )
    given = [*(["--dsn", "postgresql:///x"] if needs_database else []), *arguments]
    program.commands[name].make_context(name, given)


def test_every_operator_page_names_its_law_and_its_limits() -> None:
    pages = [page for page in (DOCS / "operators").glob("*.md") if page.name != "README.md"]
    links = LINK.findall((DOCS / "operators" / "README.md").read_text())
    listed = [link for link in links if "/" not in link]
    assert sorted(page.name for page in pages) == sorted(listed)
    for page in pages:
        headings = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
        assert {"Law", "Example", "What is read", "Limits"} <= set(headings), page.name


def test_every_decision_is_listed() -> None:
    pages = {page.name for page in (DOCS / "decisions").glob("0*.md")}
    assert pages == set(LINK.findall((DOCS / "decisions" / "README.md").read_text()))


def test_the_names_of_files_in_the_docs_are_there() -> None:
    named = {
        (page, path)
        for page in PAGES
        for path in re.findall(
            r"`((?:src/millstream|algebra|plan|sql|cli|docs|tests)/[\w/.-]+\.(?:py|md))`",
            page.read_text(),
        )
    }
    missing = [
        (page.name, path)
        for page, path in named
        if not any((base / path).exists() for base in (ROOT, ROOT / "src" / "millstream"))
    ]
    assert missing == []


def test_the_names_in_files_that_the_docs_tell_are_there() -> None:
    """A name of the code was changed, and pages went on telling the former one."""
    told = [
        (page.name, name, path)
        for page in PAGES
        for name, path in re.findall(
            r"`([\w.]+)(?:\([^`]*\))?`\s+in\s+`([\w/]+\.py)`", page.read_text()
        )
    ]
    assert len(told) > 20
    assert [
        one for one in told if not re.search(rf"\b{one[1].rpartition('.')[2]}\b", _code(one[2]))
    ] == []


def _code(path: str) -> str:
    bases = (ROOT, ROOT / "src" / "millstream", ROOT / "src" / "millstream" / "compiler")
    return next(file.read_text() for base in bases if (file := base / path).exists())


def test_the_attributes_that_the_docs_name_are_there() -> None:
    named = {
        (page.name, *found)
        for page in PAGES
        for found in re.findall(r"`([A-Z]\w+)\.(\w+)(?:\(.*?\))?`", page.read_text())
    }
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    classes = dict(re.findall(r"^class (\w+)\b(.*?)(?=^\S|\Z)", source, re.DOTALL | re.MULTILINE))
    missing = [
        one
        for one in named
        if one[1] in classes and not re.search(rf"\b{one[2]}\b", classes[one[1]])
    ]
    assert len([one for one in named if one[1] in classes]) > 3
    assert missing == []


def test_the_plans_that_the_docs_name_are_there() -> None:
    plans = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"`(?:[\w/]+/)?([\w*]+\.txt)`", page.read_text())
    }
    assert len(plans) > 20
    assert [one for one in plans if not list((ROOT / "tests").rglob(one[1]))] == []


@pytest.mark.parametrize(
    ("page", "least"),
    [("reliability.md", 100), ("security.md", 10), ("explain/schema-changes.md", 15)],
)
def test_every_test_that_a_page_names_exists(page: str, least: int) -> None:
    told = re.findall(
        r"\]\((?:\.\./)+(tests/[^)]+)\): (`test_\w+`(?:, `test_\w+`)*)", (DOCS / page).read_text()
    )
    named = [(path, name) for path, names in told for name in re.findall(r"test_\w+", names)]
    assert len(named) > least
    assert [one for one in named if f"def {one[1]}(" not in (ROOT / one[0]).read_text()] == []


NAMED = re.compile(r"`([a-z_/]+\.py):(\w+)`")


def test_every_function_that_the_life_of_a_change_names_exists() -> None:
    named = NAMED.findall((DOCS / "explain" / "life-of-a-change.md").read_text())
    sources = {file: (ROOT / "src" / "millstream" / file).read_text() for file, _ in named}
    missing = [
        (file, name)
        for file, name in named
        if not re.search(rf"^(def|class) {name}\b", sources[file], re.M)
    ]
    assert len(named) > 15
    assert missing == []


def test_the_life_of_a_change_stays_in_a_room_as_long_as_it_can() -> None:
    """It was 47 changes of room once; whoever follows the path by the files opens one package after
    the other.
    """
    page = (DOCS / "explain" / "life-of-a-change.md").read_text()
    rooms = [
        file.partition("/")[0] for file, _ in NAMED.findall(page.partition("\n## Verified")[0])
    ]
    by_file = sum(one != other for one, other in pairwise(rooms))
    [path] = re.findall(r"^    (capture \| .*(?:\n    .*)*)", page, re.MULTILINE)
    assert by_file <= path.count(">") <= 20
    assert f"{path.count('>')} times" in page


def test_everything_for_monitoring_is_described_with_a_test_that_exists() -> None:
    page = importlib.import_module("docs.monitoring")
    assert [
        one.name
        for one in page.MONITORS
        if f"def {one.test.partition('::')[2]}(" not in _text(one.test)
    ] == []
    described = {one.name for one in page.MONITORS}
    granted = {
        name.removeprefix("millstream.").partition("(")[0]
        for name in (*roles.VIEWS, *roles.FUNCTIONS)
    }
    assert granted - set(page.HELPERS) == described
    used = {column for one in page.MONITORS for column in one.columns if column not in one.own}
    assert used == set(page.COLUMNS)


def test_every_setting_has_a_test_that_shows_it() -> None:
    from docs.setting_tests import SHOWN_BY

    assert sorted(SHOWN_BY) == sorted(Settings.model_fields)
    assert [
        test for test in SHOWN_BY.values() if f"def {test.partition('::')[2]}(" not in _text(test)
    ] == []


def test_every_alert_is_listed_with_a_test_that_exists() -> None:
    from docs.alerts import ALERTS

    assert sorted(one.kind for one in ALERTS) == sorted(get_args(Alert))
    shown = [one.test.partition("::") for one in ALERTS]
    assert [
        (file, name) for file, _, name in shown if f"def {name}(" not in (ROOT / file).read_text()
    ] == []
