"""Errors of the environment: what was found, and what an administrator can do."""

from __future__ import annotations

from pathlib import Path

from millstream.errors import (
    BadSetting,
    ForeignCode,
    JavaEnded,
    JavaMissing,
    NotInstalled,
    OtherDatabase,
    ServerDown,
    ServerError,
    UntrustedCatalog,
    WrongVersion,
)


def test_a_server_that_says_nothing_is_named() -> None:
    assert (
        ServerDown.unreachable("postgresql://h/d", " ").detail == "No answer from postgresql://h/d."
    )
    assert ServerDown.unreachable("postgresql://h/d", "refused\n").detail == "refused"


def test_what_can_come_back_by_itself_is_tried_again() -> None:
    assert ServerDown.retryable
    assert JavaEnded.retryable
    assert not any(
        kind.retryable for kind in (JavaMissing, WrongVersion, NotInstalled, UntrustedCatalog)
    )


def test_the_version_is_printed_as_users_write_it() -> None:
    error = WrongVersion.of(140012, 15, 18)
    assert error.message == "PostgreSQL 14 is not supported"
    assert "140012" in error.detail


def test_a_file_of_others_is_trusted_by_a_variable_with_its_full_path() -> None:
    error = BadSetting.by_others(
        Path("/x/millstream.toml"), "it is writable by others", ["spark_conf", "dsn"]
    )
    assert error.detail.startswith("It is writable by others, ")
    assert error.hint.endswith("set MILLSTREAM_CONFIG=/x/millstream.toml in the environment.")
    assert error.names == ["spark_conf", "dsn"]


def test_an_older_catalog_is_upgraded_and_a_newer_one_needs_a_newer_program() -> None:
    assert "millstream init" in NotInstalled.older(3, 9).hint
    assert "on this machine" in NotInstalled.newer(9, 3).hint


def test_every_finding_is_listed() -> None:
    found = UntrustedCatalog.holding(["a view", "a trigger"], ["DROP VIEW a;", "DROP TRIGGER b;"])
    assert "a view; a trigger" in found.detail
    assert found.hint.endswith("DROP VIEW a; DROP TRIGGER b;")
    assert (
        "other oids; another server"
        in OtherDatabase.because("d", ["other oids", "another server"]).detail
    )


def test_untrusted_code_is_reported_with_its_owners_and_the_service_role() -> None:
    error = ForeignCode.under_query(["function f()"], ["eve", "bob"], "us")
    assert error.detail.endswith('function f(), owned by role "eve", "bob".')
    assert 'Give these objects to role "us"' in error.hint


def test_an_error_of_the_server_without_a_hint_points_to_its_log() -> None:
    assert ServerError.because("it broke", sqlstate="XX000").hint == "See the server log for more."
    assert ServerError.because("it broke", sqlstate="XX000", hint="Mend it.").hint == "Mend it."
