"""Session settings: checked when they are given, set within a block, resolved for our sessions."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from millstream.errors import BadSetting
from millstream.postgres import session_settings
from millstream.postgres.connection import Connection, connect, connect_unpinned, pinned


def test_names_and_values_are_as_the_server_writes_them(conn: Connection) -> None:
    given = {"timezone": "europe/berlin", "datestyle": "DMY", "extra_float_digits": 3}
    assert session_settings.checked(conn, given) == {
        "TimeZone": "Europe/Berlin",
        "DateStyle": "ISO, DMY",
        "extra_float_digits": "3",
    }
    assert session_settings.checked(conn, {"default_text_search_config": "german"}) == {
        "default_text_search_config": "pg_catalog.german"
    }
    assert session_settings.checked(conn, None) == {}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"TimeZone": "Mars/Olympus"}, "settings.TimeZone"),
        ({"work_mem": "1GB"}, "settings"),
        ({"search_path": "public"}, "settings"),
        ({"TimeZone": ["UTC"]}, "settings.TimeZone"),
        ({"DateStyle": "German"}, "settings.DateStyle"),
        ({"extra_float_digits": 0}, "settings.extra_float_digits"),
        ({"default_text_search_config": "nowhere.none"}, "settings.default_text_search_config"),
        ("TimeZone=UTC", "settings"),
    ],
)
def test_other_settings_and_values_are_refused(conn: Connection, given: object, name: str) -> None:
    with pytest.raises(BadSetting) as caught:
        session_settings.checked(conn, given)
    assert caught.value.facts["name"] == name
    assert caught.value.hint


def test_a_block_has_settings_of_its_own(conn: Connection) -> None:
    with conn.transaction():
        with session_settings.under(conn, {"TimeZone": "Asia/Tokyo", "DateStyle": "ISO, DMY"}):
            assert _shown(conn) == ("Asia/Tokyo", "ISO, DMY")
            with session_settings.under(conn, {"TimeZone": "UTC"}):
                assert _shown(conn) == ("UTC", "ISO, DMY")
        assert _shown(conn) == ("UTC", "ISO, MDY")
    assert _shown(conn) == ("UTC", "ISO, MDY")


def test_an_error_within_a_block_ends_its_settings(conn: Connection) -> None:
    with conn.transaction():
        with pytest.raises(KeyError), session_settings.under(conn, {"TimeZone": "Asia/Tokyo"}):
            raise KeyError
        assert _shown(conn)[0] == "UTC"
        within = session_settings.under(conn, {"TimeZone": "Asia/Tokyo"})
        with pytest.raises(psycopg.Error), conn.transaction(), within:
            conn.execute("SELECT 1 / 0")
        assert _shown(conn)[0] == "UTC"


def test_the_settings_of_the_user_are_those_of_role_database_and_dsn(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {admin.info.dbname} SET TimeZone = 'Asia/Tokyo'")
        # A role's timeout must not end the session that asks.
        admin.execute("ALTER ROLE tester SET statement_timeout = 1")
    dsn = make_conninfo(database, options="-c DateStyle=German")
    try:
        found = session_settings.of_user(dsn)
        with connect_unpinned(dsn, session_settings.NAMES) as conn:
            assert conn.execute("SHOW statement_timeout").fetchone() == ("0",)
    finally:
        with connect(database) as conn:
            conn.execute("ALTER ROLE tester RESET statement_timeout")
    assert (found["TimeZone"], found["DateStyle"]) == ("Asia/Tokyo", "German, DMY")


def test_a_text_search_configuration_is_found_along_the_path_of_who_asks(conn: Connection) -> None:
    conn.execute("CREATE TEXT SEARCH CONFIGURATION public.own (COPY = simple)")
    asked = {"default_text_search_config": "own", "work_mem": "1GB"}
    assert session_settings.resolved(conn, asked) == {"default_text_search_config": "public.own"}
    for bad in ({"default_text_search_config": "gone"}, {"TimeZone": "Mars/Olympus"}):
        with pytest.raises(BadSetting):
            session_settings.resolved(conn, bad)


def test_only_what_a_query_depends_on_is_recorded(conn: Connection) -> None:
    asked = {"TimeZone": "Asia/Tokyo", "DateStyle": "German, DMY"}
    found = session_settings.chosen(conn, frozenset({"TimeZone", "IntervalStyle"}), asked)
    assert found == {"TimeZone": "Asia/Tokyo", "IntervalStyle": "postgres"}
    with pytest.raises(BadSetting) as caught:
        session_settings.chosen(conn, frozenset({"DateStyle"}), asked)
    assert "depends on DateStyle" in caught.value.detail


def test_a_startup_option_may_have_spaces_and_backslashes(database: str) -> None:
    settings = {"DateStyle": "ISO, DMY", "millstream.odd": "a\\b c"}
    dsn = pinned(database, version=0, application_name="test", **settings)
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SHOW DateStyle").fetchone() == ("ISO, DMY",)
        assert conn.execute("SHOW millstream.odd").fetchone() == ("a\\b c",)


def _shown(conn: Connection) -> tuple[str, str]:
    found: tuple[str, str] = conn.execute(
        "SELECT current_setting('TimeZone'), current_setting('DateStyle')"
    ).fetchall()[0]
    return found
