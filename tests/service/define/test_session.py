"""A query is read with the settings and the search_path of the session that asks."""

from __future__ import annotations

import psycopg
import pytest

from millstream import Millstream
from millstream.errors import BadSetting
from millstream.service.define.session import AskingSession, checked, plan

QUERY = "SELECT id, at::date AS d FROM events WHERE at > '2024-01-01'"


@pytest.fixture
def events(unfilled: Millstream, writer: psycopg.Connection) -> Millstream:
    writer.execute("CREATE TABLE events (id int PRIMARY KEY, at timestamptz, day date)")
    return unfilled


def test_constants_mean_what_they_mean_to_who_asks(events: Millstream) -> None:
    session = AskingSession("public", {"TimeZone": "Europe/Berlin", "DateStyle": "German, DMY"})
    planned = plan(events.app, QUERY.replace("2024-01-01", "1.2.2024"), None, session, {})
    assert "'2024-01-31 23:00:00+00'" in planned.canonical.text
    assert planned.settings == {"TimeZone": "Europe/Berlin"}
    again = plan(events.app, planned.canonical.text, None, session, {"TimeZone": "Asia/Tokyo"})
    assert again.canonical.text == planned.canonical.text
    assert again.settings == {"TimeZone": "Asia/Tokyo"}


def test_by_default_the_settings_are_those_of_the_dsn(events: Millstream) -> None:
    events.app.conn.execute(
        f"ALTER DATABASE {events.app.conn.info.dbname} SET TimeZone = 'Asia/Tokyo'".encode()
    )
    assert plan(events.app, QUERY, None, AskingSession(), {}).settings == {"TimeZone": "Asia/Tokyo"}


def test_a_query_that_depends_on_no_setting_records_none(events: Millstream) -> None:
    query = (
        "SELECT id, id::text AS t, concat(id, 'x') AS c, to_jsonb(day) AS j, now() AS n FROM events"
    )
    assert plan(events.app, query, None, AskingSession(), {}).settings == {}


def test_bad_settings_are_refused_with_what_is_expected(events: Millstream) -> None:
    with pytest.raises(BadSetting) as caught:
        checked(events.app, AskingSession(), {"TimeZone": "Mars"})
    assert "TimeZone" in caught.value.message
    session = AskingSession("public", {"DateStyle": "German"})
    with pytest.raises(BadSetting) as caught:
        plan(events.app, "SELECT id, day::text AS d FROM events", None, session, {})
    assert "ISO" in caught.value.hint
