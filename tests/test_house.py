"""The house: rooms import downwards only, modules have tests of their names, the lock holds what is
declared.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_rooms_import_downwards_only() -> None:
    # In a process of its own: import-linter sets up logging anew, and other tests' loggers fall
    # silent.
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
        "--no-cache",
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_importing_the_program_does_not_import_pandas() -> None:
    """A constant of Arrow's imported it: a third of the time of a command that only asks the
    catalog.
    """
    code = "import sys, millstream.cli.app, millstream.client; print('pandas' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_the_tests_that_run_once_or_first_are_there() -> None:
    """A file that is moved would run on every server again, and nobody would notice but for the
    time.
    """
    script = runpy.run_path(str(ROOT / "scripts" / "test"))
    assert [
        path
        for path in (*script["AGAIN"], *script["ONCE"], *script["FIRST"])
        if not (ROOT / path).exists()
    ] == []


# Silenced: a warning of mypy or ruff, and an error that is passed over.
SILENCED = re.compile(r"#\s*(?:type: ignore|noqa)[^#-]*$")
PASSED_OVER = re.compile(r"\bsuppress\(|\bexcept:|\bexcept Exception:")


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "docs"])
def test_every_silenced_warning_has_its_reason_beside_it(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if SILENCED.search(line)
    ]
    assert found == []


def test_every_error_that_is_passed_over_has_its_reason_beside_it() -> None:
    """A comment within three lines, or a `raise`."""
    found = list[str]()
    for path in sorted((ROOT / "src").rglob("*.py")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            around = lines[max(number - 3, 0) : number + 8]
            if PASSED_OVER.search(line) and not re.search(r"# |\braise\b", "\n".join(around)):
                found.append(f"{path.relative_to(ROOT)}:{number + 1}: {line.strip()}")
    assert found == []


# The modules that read text by regular expressions, each with the text that it reads. SQL is built
# of objects: psycopg.sql for statements, sqlglot's nodes for queries.
READ_BY_REGEX = {
    "catalog/installation/install.py": "names of files of migrations",
    "compiler/server/node_tree.py": "the server's node trees",
    "compiler/server/json_paths.py": "the path of an SQL/JSON call",
    "compiler/server/parentheses.py": "the server's text of a view",
    "compiler/server/viewdef.py": "the server's text of a view",
    "duration.py": "durations",
    "errors/base.py": "names that need no quotes in a shell",
    "postgres/failures.py": "messages of Spark that quote errors of the server",
    "postgres/sql_files.py": "heads of named blocks in .sql files",
    "service/live_settings.py": "names of settings that hold secrets",
    "settings.py": "sizes, and addresses of Spark",
    "spark/engine.py": "messages of Spark",
    "spark/inline.py": "characters that a literal of Spark's must escape",
    "spark/java.py": "the version that java prints",
}


def test_sql_is_not_edited_by_regular_expressions() -> None:
    source = ROOT / "src" / "millstream"
    modules = [
        path for path in source.rglob("*.py") if "testing" not in path.relative_to(source).parts
    ]
    found = {
        path.relative_to(source).as_posix()
        for path in modules
        if "\nimport re\n" in path.read_text()
    }
    assert found == set(READ_BY_REGEX)


# Rooms and modules with SQL that is built as text, each with what it is. The statements that our sessions execute are
# composed of psycopg.sql objects (see `postgres/composed.py`).
BUILT_AS_TEXT = {
    "algebra/": "expressions of queries, which sqlglot parses; templates of a value's conversions",
    "capture/trigger/layout.py": "keywords of a Literal type",
    "capture/wal/publication.py": "hints",
    "catalog/definitions/rights.py": "hints",
    "catalog/installation/install.py": "hints",
    "catalog/target/target_shape.py": "hints",
    "cli/demo/": "statements that the demo shows as one would type them",
    "compiler/blocks/": "expressions of queries, which sqlglot parses",
    "compiler/clauses/": "expressions of queries, which sqlglot parses",
    "compiler/decorrelate/": "expressions of queries, which sqlglot parses",
    "compiler/lowering/": "Spark SQL",
    "compiler/placement/": "Spark SQL, and expressions that sqlglot parses",
    "compiler/server/json_paths.py": "an expression as sqlglot prints it",
    "compiler/server/queries.py": "hints",
    "compiler/workaround.py": "hints",
    "errors/": "hints",
    "postgres/composed.py": "the one constructor of printed text",
    "postgres/relations.py": "hints",
    "postgres/table_locks.py": "keywords of a Literal type",
    "service/define/create.py": "hints",
    "service/monitoring/": "hints",
    "service/requests/answer.py": "hints",
    "spark/": "Spark SQL",
    "testing/": "queries and changes, as users write them",
}
_KEYWORD = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|MERGE|CREATE|DROP|ALTER|TRUNCATE|ANALYZE|EXPLAIN|COPY|GRANT|REVOKE|LOCK|SET|FROM"
    r"|WHERE|JOIN|VALUES|UNION|GROUP BY|ORDER BY|LIMIT|CAST|CASE|AND|OR|AS|IS NULL|IS NOT)\b|::"
)


def fixed_text(node: ast.expr) -> str:
    """Return the text of a constant, or of the constant parts of an f-string."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(text)):
            return text.decode()
        case ast.JoinedStr(values=parts):
            return " ".join(map(fixed_text, parts))
    return ""


def is_fixed(node: ast.expr) -> bool:
    """True for a constant, one of two constants, and a named block of a .sql file."""
    match node:
        case ast.IfExp(body=one, orelse=other):
            return is_fixed(one) and is_fixed(other)
        case ast.Subscript(value=ast.Name(id=name)):
            return name == "_SQL"
    return isinstance(node, ast.Constant)


def builds_sql_as_text(node: ast.AST) -> bool:
    """True if an expression makes SQL of pieces of text."""
    match node:
        case ast.JoinedStr(values=parts):
            has_values = any(isinstance(part, ast.FormattedValue) for part in parts)
            return has_values and bool(_KEYWORD.search(fixed_text(node)))
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
            return bool(_KEYWORD.search(f"{fixed_text(left)} {fixed_text(right)}"))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr=attribute)):
            return attribute in ("join", "format", "replace") and bool(_KEYWORD.search(text))
        case ast.Call(func=ast.Attribute(value=ast.Name(id="sql"), attr="SQL"), args=[text]):
            return not is_fixed(text)
        case ast.Call(func=ast.Name(id="Printed"), args=[ast.JoinedStr() | ast.BinOp()]):
            return True
    return False


@pytest.mark.parametrize(
    "code",
    [
        'f"SELECT * FROM {table}"',
        'f"{column}::text"',
        '"DELETE FROM " + table',
        'b"EXPLAIN " + query.encode()',
        '"DROP TABLE %s" % table',
        '"SELECT {}".format(column)',
        '" AND ".join(conditions)',
        'sql.SQL(f"{name}")',
        "sql.SQL(text)",
        'Printed(f"{alias}.x")',
    ],
)
def test_sql_that_is_built_as_text_is_found(code: str) -> None:
    assert any(builds_sql_as_text(node) for node in ast.walk(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        'sql.SQL("SELECT * FROM {}").format(table)',
        'sql.SQL(" AND ").join(conditions)',
        'sql.SQL("ASC" if ascending else "DESC")',
        'conn.execute("SELECT * FROM t WHERE id = %s", (id,))',
        'sql.Identifier(f"state_{id}")',
        "Printed(block.having)",
        'f"{rows} rows read"',
    ],
)
def test_sql_that_is_composed_of_objects_is_none_built_as_text(code: str) -> None:
    assert not any(builds_sql_as_text(node) for node in ast.walk(ast.parse(code)))


def test_statements_are_composed_of_objects_and_not_built_as_text() -> None:
    source = ROOT / "src" / "millstream"
    found = dict[str, list[int]]()
    for path in sorted(source.rglob("*.py")):
        module = path.relative_to(source).as_posix()
        nodes = ast.walk(ast.parse(path.read_text()))
        expressions = [node for node in nodes if isinstance(node, ast.expr)]
        lines = [node.lineno for node in expressions if builds_sql_as_text(node)]
        if lines:
            found[module] = lines
    unknown = {m: lines for m, lines in found.items() if not m.startswith(tuple(BUILT_AS_TEXT))}
    assert unknown == {}
    unused = [one for one in BUILT_AS_TEXT if not any(m.startswith(one) for m in found)]
    assert unused == []


# Words of ours that an earlier version showed to users, where the field has one of its own (see
# docs/glossary.md).
_PRIVATE = re.compile(
    r"\b(hand-?over|handed over|padded|gathered|netted|flip(s|ped)?|moving filter|tied (to|by)|meets? (none|nothing)|"
    r"way round|made anew|the log (tells|does not tell|has come))\b"
)


def test_messages_have_no_private_words() -> None:
    found = list[str]()
    for path in sorted((ROOT / "src" / "millstream").rglob("*.py")):
        if "testing" in path.parts:
            continue
        texts = (
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant)
        )
        found += [
            f"{path.name}: {word[0]}"
            for text in texts
            if isinstance(text, str) and (word := _PRIVATE.search(text))
        ]
    assert found == []


def locked() -> dict[str, str]:
    """Package and version, as the lock file has them."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_the_lock_holds_a_version_of_everything_declared_and_within_its_range() -> None:
    declared = [
        Requirement(text)
        for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    ]
    versions = locked()
    assert [str(one) for one in declared if not one.specifier.contains(versions[one.name])] == []


def test_the_lock_names_no_place_to_download_from() -> None:
    assert not re.search(
        r"://|--(extra-)?index|--find-links|@ ", (ROOT / "requirements.lock").read_text()
    )


def surroundings(tmp_path: Path, **scripts: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/surroundings on a PATH where the named programs are these shell scripts."""
    for name, body in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "python3"}
    environment.pop("JAVA_HOME", None)
    command = [ROOT / "scripts" / "surroundings"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("told", "good"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('java version "21" 2023-09-19 LTS', True),
        ('openjdk version "24-ea" 2025-03-18', True),
        ('openjdk version "11.0.2" 2019-01-15', False),
        ('java version "1.8.0_402"', False),
        ("no such thing", False),
    ],
)
def test_java_must_be_17_or_newer(tmp_path: Path, told: str, good: bool) -> None:
    ended = surroundings(tmp_path, java=f"echo '{told}' >&2")
    assert (ended.returncode == 0) is good
    if not good:
        assert ended.stderr.startswith("error: ")
        assert "hint: Install it with: " in ended.stderr


def test_an_old_python_is_an_error_with_a_hint(tmp_path: Path) -> None:
    old = 'case "$2" in *print*) echo 3.9;; *) exit 1;; esac'
    ended = surroundings(tmp_path, python3=old)
    assert ended.returncode == 1
    assert "Python 3.11 or newer is needed; python3 is 3.9" in ended.stderr
    assert "make PYTHON=python3.12" in ended.stderr


def test_a_compiled_sqlglot_is_an_error_with_a_hint() -> None:
    given = "import sqlglot.parser; sqlglot.parser.__file__ = 'parser.so'; import millstream.algebra.dialect"
    ended = subprocess.run(
        [sys.executable, "-c", given], capture_output=True, text=True, check=False
    )
    assert "pip uninstall sqlglotc" in ended.stderr


def test_no_name_of_the_python_api_is_the_name_of_a_module() -> None:
    """Importing a room sets an attribute of the package: `millstream.embedded` became a module and
    was no function.
    """
    import millstream

    modules = {path.stem for path in (ROOT / "src" / "millstream").iterdir()}
    assert modules & set(millstream.__all__) == set()


@pytest.mark.parametrize(
    "module",
    [file for file in sorted((ROOT / "src").rglob("*.py")) if ">>> " in file.read_text()],
    ids=lambda file: file.stem,
)
def test_examples_in_docstrings_are_true(module: Path) -> None:
    name = ".".join(module.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(
        ".__init__"
    )
    assert doctest.testmod(importlib.import_module(name)).failed == 0


# Modules without a test of their name, each with the test that covers it and the reason. A folder
# stands for all in it.
COVERED: dict[str, tuple[str, str]] = {
    "__main__.py": (
        "cli/test_processes.py",
        "it is the program's start, so it is tested as a process",
    ),
    "capture/transition/context.py": (
        "capture/transition/test_transitions.py",
        "a protocol, and a record without rules",
    ),
    "scheduler/context.py": ("scheduler/test_round.py", "a protocol"),
    "catalog/installation/adoption.py": (
        "service/test_adopt.py",
        "it rewrites a catalog that was restored",
    ),
    "testing/restore.py": ("service/test_adopt.py", "pg_dump and pg_restore between two clusters"),
    "testing/sqlsmith.py": ("law/test_sqlsmith.py", "a program that is not always there"),
    "testing/writers.py": (
        "concurrency/test_exact.py",
        "it is the load of the tests of concurrency",
    ),
}


def own_test(module: str) -> str:
    path = Path(module)
    return str(path.parent / f"test_{path.stem.strip('_')}.py")


def covered_by(module: str) -> str | None:
    """Return the test of a module: the one of its name, or the one that the table names."""
    if (ROOT / "tests" / own_test(module)).exists():
        return own_test(module)
    named = COVERED.get(module) or COVERED.get(str(Path(module).parent))
    return named[0] if named else None


def modules() -> list[str]:
    source = ROOT / "src" / "millstream"
    return [
        str(file.relative_to(source))
        for file in sorted(source.rglob("*.py"))
        if file.name != "__init__.py"
    ]


def test_every_module_has_a_test_of_its_name_or_one_that_covers_it() -> None:
    assert [module for module in modules() if covered_by(module) is None] == []
    assert [test for test, _ in COVERED.values() if not (ROOT / "tests" / test).exists()] == []


def test_nine_of_ten_modules_have_a_test_of_their_name_and_the_table_names_what_exists() -> None:
    found = modules()
    named = [
        module
        for module in found
        if (covered_by(module) or "").endswith(f"test_{Path(module).stem.strip('_')}.py")
    ]
    assert len(named) >= 0.9 * len(found)
    assert all((ROOT / "src" / "millstream" / path).exists() for path in COVERED)


@pytest.mark.parametrize("room", sorted({str(Path(module).parent) for module in modules()} - {"."}))
def test_every_room_has_a_door_that_says_what_it_owns(room: str) -> None:
    door = importlib.import_module(f"millstream.{room.replace('/', '.')}")
    assert len((door.__doc__ or "").strip()) > 20


def test_no_class_name_is_used_twice() -> None:
    """One word for one thing: a reader who searches for a class finds one."""
    house = runpy.run_path(str(ROOT / "scripts" / "house"))
    assert house["names_used_twice"](house["parsed"](house["SOURCE"])) == {}
