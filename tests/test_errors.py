"""Follow the hints of errors that are not about a query: what they tell to run is run, and the
error is gone.

`FOLLOWED` names the test that follows each hint, here or beside the module that raises the error;
`NOT_FOLLOWED` gives the reason where no test can. Together they are all of the ways in which the
classes of `millstream.errors` are built. Hints of refused queries (MS1xx) are followed by
`test_hints.py`.
"""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import millstream
from millstream import Millstream, errors
from millstream.catalog.installation import install
from millstream.cli.app import app
from millstream.errors import MillstreamError

TESTS = Path(__file__).parent

IDENTITY = "catalog/installation/test_identity.py"
HERE = "test_errors.py"
ALTERED = "refresh/apply/test_merge.py::test_the_error_for_an_altered_table_has_a_hint_that_works"
TRUSTED = "catalog/definitions/test_foreign_code.py::test_the_setting_trusted_roles_lets_code_of_a_role_run"
HEALTH = "service/monitoring/test_health.py::test_what_it_says_about_a_source_is_what_the_next_refresh_does"
FOLLOWED: dict[str, str] = {
    "BadSetting.by_others": "test_settings.py::test_a_file_that_others_could_have_written_sets_nothing_harmful",
    "OwnerLacksRight.to_read": "catalog/definitions/test_rights.py::"
    "test_what_the_owner_may_not_read_is_refused_until_it_may",
    "OwnerLacksRight.by_policy": "catalog/definitions/test_rights.py::"
    "test_row_level_security_that_is_bypassed_is_reported_at_creation_and_in_status",
    "ForeignCode.under_query": TRUSTED,
    "ForeignCode.under_table": TRUSTED,
    "ForeignCode.on_table": TRUSTED,
    "ForeignCode._with": TRUSTED,
    "ServerDown.lost": "crash/test_server.py::test_a_server_that_is_down_is_reported_and_found_again",
    "JavaEnded.while_refreshing": "spark/test_session.py::"
    "test_java_killed_between_refreshes_or_amid_one_is_started_again_and_the_refresh_is_exact",
    "JavaEnded.of_given_session": "spark/test_session.py::"
    "test_a_given_session_that_has_ended_is_not_replaced_but_named",
    "NoRights.to": f"{HERE}::test_rights_that_are_granted_as_the_hint_says_suffice",
    "NoRights.to_catalog": "catalog/installation/test_install.py",
    "NotInstalled.here": f"{HERE}::test_a_database_without_the_catalog_gets_one_as_the_hint_says",
    "NotInstalled.older": "catalog/installation/test_install.py::test_an_older_catalog_is_refused_until_it_is_upgraded",
    "UntrustedCatalog.owned_by": "catalog/installation/test_trust.py",
    "UntrustedCatalog.holding": "service/test_verb.py::test_a_process_that_runs_notices_what_was_planted_since",
    "OtherDatabase.because": "service/test_adopt.py::test_every_stream_table_of_a_restored_database_comes_back_exact",
    "Closed.by_user": f"{HERE}::test_a_closed_connection_is_opened_again_as_the_hint_says",
    "NameTaken.by": f"{HERE}::test_a_name_that_is_taken_is_free_when_the_hint_is_followed",
    "NameTaken.by_schema": "catalog/installation/test_trust.py",
    "NoSuchStreamTable.named": f"{HERE}::test_commands_of_hints_work_with_odd_names",
    "StillUsed.by": f"{HERE}::test_commands_of_hints_work_with_odd_names",
    "StillUsed.schema": f"{HERE}::test_tables_in_our_schema_are_moved_as_the_hint_says",
    "TargetMoved.renamed": f"{HERE}::test_commands_of_hints_work_with_odd_names",
    "TargetMoved.another": f"{IDENTITY}::test_a_renamed_table_is_neither_dropped_nor_its_successor",
    "TargetMoved.unmarked": f"{IDENTITY}::test_a_table_without_our_mark_is_left_alone_and_the_hint_works",
    "TargetMoved.dropped": f"{HERE}::test_commands_of_hints_work_with_odd_names",
    "TargetAltered.column": ALTERED,
    "TargetAltered.has": ALTERED,
    "TriggerInterferes.by": "refresh/apply/test_merge.py::test_a_trigger_that_changes_or_drops_rows_is_refused_by_name",
    "NotFilled.upstream": f"{HERE}::test_commands_of_hints_work_with_odd_names",
    "NotAdopted.listing": "service/test_adopt.py::test_what_cannot_be_resolved_is_listed_and_left_alone",
    "SourceChanged.shape": HEALTH,
    "SourceChanged.query": HEALTH,
    "SourceChanged.key": HEALTH,
    "SourceChanged.storage": "service/test_follow_types.py::"
    "test_a_view_over_a_stream_table_that_stands_in_the_way_is_named",
    "LockNotHad.somewhere": "service/test_verb.py",
    "LockNotHad.on": "scheduler/test_repair.py::test_a_source_whose_capture_waits_for_a_lock_holds_up_its_readers_only",
    "LockNotHad.by_reader": "scheduler/test_repair.py::"
    "test_a_source_that_is_locked_while_its_query_is_planned_holds_up_its_readers_only",
    "LockNotHad.by_writer": "scheduler/test_repair.py::"
    "test_a_stream_table_that_is_locked_holds_up_itself_only_and_not_for_long",
    "SpillFailed.into": "capture/wal/test_follower.py::test_a_full_spill_disk_stops_only_capture_from_wal",
    "RefreshFailed.because": "service/monitoring/test_health.py::"
    "test_it_is_red_where_the_last_refresh_failed_whatever_the_schedule",
    "Cancelled.by": "scheduler/test_round.py::test_a_refresh_that_an_administrator_cancels_is_cancelled_and_not_failed",
    "ServerTrouble.of": "scheduler/test_round.py::test_trouble_that_passes_is_counted_apart_and_never_suspends",
    "InternalError.of": "cli/test_command.py::test_an_unexpected_error_is_printed_without_a_traceback",
    "TargetDiffers.at": f"{HERE}::test_commands_of_hints_work_with_odd_names",
    "TargetDiffers.without_index": "catalog/definitions/test_definition_digests.py",
}
_BY_ITSELF = "It says that the trouble passes by itself; the tests of the module show that it does."
NOT_FOLLOWED: dict[str, str] = {
    "ServerDown.unreachable": "It tells to look at the address and at the server.",
    "ServerDown.not_started": "It tells where the log of the server is.",
    "ServerDown.no_wheel": "It installs a package.",
    "WrongVersion.of": "It asks for another server.",
    "JavaMissing.found": "It installs Java.",
    "JavaMissing.ended": "It tells to look at the machine.",
    "BadSetting.of": "It says what is expected; the callers' tests pass such values.",
    "NotInstalled.newer": "It asks for a newer Millstream.",
    "NotYet.feature": "It tells what to do without a feature that is missing.",
    "ServerError.because": "It is the server's own hint.",
    "LockNotHad.installing": "Another session must end, which the test of the lock does.",
    "SlotLost.because": _BY_ITSELF,
    "WalBroken.off": _BY_ITSELF,
    "WalNotUnderstood.at": "It asks for a report.",
    "WalBehind.after": _BY_ITSELF,
    "WalTakenOver.by_other": "One of two processes must be stopped.",
    "JavaEnded.while_working": "It tells to try again, as the other two do.",
    "Busy.adopting": _BY_ITSELF,
    "Busy.working_on": _BY_ITSELF,
    "ValueOutOfRange.in_column": "It tells to declare the column otherwise.",
    "RecursionTooDeep.after": "It tells to write the query otherwise, or to raise a setting.",
    "Conflict.on": _BY_ITSELF,
    "Deposed.in_epoch": _BY_ITSELF,
    "RequestNotDone.within": "It tells to wait again.",
    "NoSuchRequest.numbered": "It says which requests are seen.",
    "TooManyRequests.of": "It is the hint of the catalog's own check.",
    "NotVisibleYet.of": "It tells to wait, or to ask for a refresh.",
    "RequestInterrupted.of": "It tells to look and to ask again.",
    "ProcessEnded.while_refreshing": _BY_ITSELF,
    "LockTableFull.by_graph": "It restarts the server with another setting.",
    "LockTableFull.at": "It restarts the server with another setting.",
    "PlanningFailed.at": "It asks for a report.",
}


def built() -> set[str]:
    """All ways in which errors that are not about a query are built."""
    return {
        f"{name}.{method}"
        for name, kind in vars(errors).items()
        if inspect.isclass(kind)
        and issubclass(kind, MillstreamError)
        and not issubclass(kind, errors.QueryError)
        for method, how in vars(kind).items()
        if isinstance(how, classmethod)
    }


def test_every_hint_is_followed_or_has_the_reason_why_not() -> None:
    assert built() == FOLLOWED.keys() | NOT_FOLLOWED.keys()
    assert FOLLOWED.keys() & NOT_FOLLOWED.keys() == set()


@pytest.mark.parametrize("place", sorted(set(FOLLOWED.values())))
def test_the_tests_that_follow_hints_are_there(place: str) -> None:
    file, _, name = place.partition("::")
    text = (TESTS / file).read_text()
    assert f"def {name}(" in text if name else ".hint" in text


# -- what hints tell to run --------------------------------------------------------------------


def run(dsn: str, hint: str, verb: str) -> str:
    """Run the command of a hint, as typed in a shell; what it printed."""
    found = re.search(rf"millstream ({verb}\b(?: --[a-z]+| '(?:[^']|'\"'\"')*'| [\w.]*\w)*)", hint)
    assert found, hint
    ended = CliRunner().invoke(app, shlex.split(found[1]), env={"MILLSTREAM_DSN": dsn})
    assert ended.exit_code == 0, (found[1], ended.output, ended.stderr)
    return ended.output


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")
    return writer


@pytest.mark.spark
@pytest.mark.parametrize("name", ["st", "Odd \"na'me"])
def test_commands_of_hints_work_with_odd_names(
    ms: Millstream, writer: psycopg.Connection, database: str, name: str
) -> None:
    """`millstream drop Odd name` drops nothing: names are quoted for SQL, and for the shell."""
    st = '"{}"'.format(name.replace('"', '""'))
    base = '"{}"'.format((name + "2").replace('"', '""'))
    with pytest.raises(errors.NoSuchStreamTable) as missing:
        ms.refresh(st)
    ms.create_stream_table(base, "SELECT id, v FROM t", initialize=False, schedule="manual")
    assert name[:2] in run(database, missing.value.hint, "list")

    ms.create_stream_table(st, f"SELECT id, v FROM {base}", initialize=False, schedule="manual")
    ms.alter_stream_table(base, status="SUSPENDED")
    with pytest.raises(errors.NotFilled) as unfilled:
        ms.refresh(st)
    run(database, unfilled.value.hint, "history")
    run(database, unfilled.value.hint, "refresh")
    ms.refresh(st)

    _write_behind_the_guard(writer, st)
    writer.execute("UPDATE t SET v = 2")
    with pytest.raises(errors.TargetDiffers) as differs:
        _refresh_both(ms, base, st)
    run(database, differs.value.hint, "refresh")
    assert ms.verify(st).ok

    writer.execute(f"CREATE VIEW built_on AS SELECT * FROM {st}".encode())
    with pytest.raises(errors.StillUsed) as used:
        ms.drop_stream_table(st)
    run(database, used.value.hint, "drop")
    ms.create_stream_table(st, "SELECT id FROM t", schedule="manual")

    writer.execute(f"ALTER TABLE {st} RENAME TO moved; CREATE TABLE {st} (id int)".encode())
    with pytest.raises(errors.TargetMoved) as renamed:
        ms.refresh(st)
    run(database, renamed.value.hint, "drop")
    writer.execute(f"DROP TABLE {st}".encode())
    ms.create_stream_table(st, "SELECT id FROM t", schedule="manual")

    writer.execute(f"DROP TABLE {st}".encode())
    with pytest.raises(errors.TargetMoved) as dropped:
        ms.refresh(st)
    run(database, dropped.value.hint, "drop")
    ms.create_stream_table(st, "SELECT id FROM t", schedule="manual")
    assert ms.verify(st).ok


def _write_behind_the_guard(writer: psycopg.Connection, st: str) -> None:
    for statement in (
        f"ALTER TABLE {st} DISABLE TRIGGER millstream_guard", f"DELETE FROM {st}",
        f"ALTER TABLE {st} ENABLE ALWAYS TRIGGER millstream_guard",
    ):  # fmt: skip
        writer.execute(statement.encode())


def _refresh_both(ms: Millstream, base: str, st: str) -> None:
    ms.alter_stream_table(base, status="ACTIVE")
    ms.refresh(st)


@pytest.mark.spark
def test_a_name_that_is_taken_is_free_when_the_hint_is_followed(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE TABLE st (id int)")
    with pytest.raises(errors.NameTaken, match="already exists"):
        ms.create_stream_table("st", "SELECT id FROM t")
    ms.create_stream_table("st2", "SELECT id FROM t")
    writer.execute("DROP TABLE st")
    ms.create_stream_table("st", "SELECT id FROM t")


def test_a_database_without_the_catalog_gets_one_as_the_hint_says(database: str) -> None:
    with millstream.connect(database) as connected:
        connected.uninstall()
        with pytest.raises(errors.NotInstalled) as caught:
            connected.status()
        run(database, caught.value.hint, "init")
        assert connected.status() == []


def test_a_closed_connection_is_opened_again_as_the_hint_says(database: str) -> None:
    connected = millstream.connect(database)
    connected.close()
    with pytest.raises(errors.Closed) as caught:
        connected.status()
    call = caught.value.hint.partition(": ")[2]
    again: Millstream = eval(call, {"millstream": millstream, "dsn": database})
    with again:
        assert again.status() == []


def test_tables_in_our_schema_are_moved_as_the_hint_says(database: str) -> None:
    with (
        psycopg.connect(database, autocommit=True) as conn,
        millstream.connect(database) as connected,
    ):
        conn.execute(
            'CREATE TABLE millstream."My notes" (id int); CREATE TABLE millstream.notes (id int)'
        )
        with pytest.raises(errors.StillUsed) as caught:
            connected.uninstall()
        moves = caught.value.hint.partition(": ")[2].partition(" Or drop")[0]
        conn.execute(moves.encode())
        connected.uninstall()
        conn.execute('SELECT FROM public."My notes", public.notes')


RIGHTS = {
    "temporary tables": (
        "REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC",
        "SELECT id FROM free.t",
    ),
    "schema of the query": ("REVOKE USAGE ON SCHEMA closed FROM PUBLIC", "SELECT id FROM closed.t"),
    "odd schema": (
        'REVOKE USAGE ON SCHEMA "Closed too" FROM PUBLIC',
        'SELECT id FROM "Closed too".t',
    ),
    "table": ("REVOKE SELECT ON free.t FROM PUBLIC", "SELECT id FROM free.t"),
    "schema of the stream table": (
        "REVOKE CREATE ON SCHEMA own FROM PUBLIC",
        "SELECT id FROM free.t",
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("case", RIGHTS, ids=str)
def test_rights_that_are_granted_as_the_hint_says_suffice(
    database: str, spark: SparkSession, case: str
) -> None:
    """The hint was GRANT SELECT ON the tables of the query, which is no SQL."""
    role = f"Clerk {database.rpartition('_')[2]}"
    quoted = f'"{role}"'
    revoke, query = RIGHTS[case]
    with psycopg.connect(database, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(
            f"CREATE ROLE {quoted} LOGIN; GRANT CREATE ON DATABASE {name} TO {quoted}".encode()
        )
        try:
            with millstream.connect(make_conninfo(database, user=role), spark=spark) as theirs:
                for schema in ("free", "closed", '"Closed too"'):
                    admin.execute(
                        f"CREATE SCHEMA {schema}; GRANT USAGE ON SCHEMA {schema} TO PUBLIC".encode()
                    )
                    admin.execute(f"CREATE TABLE {schema}.t (id int PRIMARY KEY)".encode())
                    admin.execute(f"GRANT SELECT, TRIGGER ON {schema}.t TO PUBLIC".encode())
                admin.execute("CREATE SCHEMA own; GRANT USAGE, CREATE ON SCHEMA own TO PUBLIC")
                admin.execute(revoke.format(database=name).encode())
                _follow(theirs, admin, query)
        finally:
            admin.execute(f"DROP OWNED BY {quoted} CASCADE; DROP ROLE {quoted}".encode())


def _follow(theirs: Millstream, admin: psycopg.Connection, query: str) -> None:
    """Create; grant what the error asks for, until nothing is asked for any more.

    The table itself needs its owner.
    """
    followed = 0
    while followed < 5:
        try:
            theirs.create_stream_table("own.st", query, initialize=False)
        except errors.NoRights as error:
            admin.execute(error.hint.partition("As an administrator: ")[2].encode())
            followed += 1
        else:
            break
    assert 0 < followed < 5
    assert [one.name for one in theirs.status()] == ["st"]


def test_the_catalog_is_installed_with_the_rights_that_the_hint_names(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        role = f"guest_{admin.info.dbname}"
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            with psycopg.connect(database, user=role, autocommit=True) as conn:
                with pytest.raises(errors.NoRights) as caught:
                    install.install(conn)
                admin.execute(caught.value.hint.partition(": ")[2].encode())
                install.install(conn)
        finally:
            admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())
