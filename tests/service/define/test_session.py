"""A query is read with the settings and the search_path of the session that asks."""

from __future__ import annotations

import psycopg
import pytest

from millstream import Millstream
from millstream.errors import BadSetting, Volatile
from millstream.service.define.session import AskingSession, Pinned, assumed, checked, plan

QUERY = "SELECT id, at::date AS d FROM events WHERE at > '2024-01-01'"


@pytest.fixture
def events(unfilled: Millstream, writer: psycopg.Connection) -> Millstream:
    writer.execute("CREATE TABLE events (id int PRIMARY KEY, at timestamptz, day date)")
    return unfilled


def test_constants_mean_what_they_mean_to_who_asks(events: Millstream) -> None:
    session = AskingSession("public", {"TimeZone": "Europe/Berlin", "DateStyle": "German, DMY"})
    planned = plan(events.app, QUERY.replace("2024-01-01", "1.2.2024"), None, session, Pinned())
    assert "'2024-01-31 23:00:00+00'" in planned.canonical.text
    assert planned.settings == {"TimeZone": "Europe/Berlin"}
    again = plan(
        events.app, planned.canonical.text, None, session, Pinned({"TimeZone": "Asia/Tokyo"})
    )
    assert again.canonical.text == planned.canonical.text
    assert again.settings == {"TimeZone": "Asia/Tokyo"}


def test_by_default_the_settings_are_those_of_the_dsn(events: Millstream) -> None:
    events.app.conn.execute(
        f"ALTER DATABASE {events.app.conn.info.dbname} SET TimeZone = 'Asia/Tokyo'".encode()
    )
    assert plan(events.app, QUERY, None, AskingSession(), Pinned()).settings == {
        "TimeZone": "Asia/Tokyo"
    }


def test_a_query_that_depends_on_no_setting_records_none(events: Millstream) -> None:
    query = (
        "SELECT id, id::text AS t, concat(id, 'x') AS c, to_jsonb(day) AS j, now() AS n FROM events"
    )
    assert plan(events.app, query, None, AskingSession(), Pinned()).settings == {}


def test_bad_settings_are_refused_with_what_is_expected(events: Millstream) -> None:
    with pytest.raises(BadSetting) as caught:
        checked(events.app, AskingSession(), {"TimeZone": "Mars"})
    assert "TimeZone" in caught.value.message
    session = AskingSession("public", {"DateStyle": "German"})
    with pytest.raises(BadSetting) as caught:
        plan(events.app, "SELECT id, day::text AS d FROM events", None, session, Pinned())
    assert "ISO" in caught.value.hint


def test_a_stable_function_is_accepted_only_where_it_is_declared_immutable(
    events: Millstream, writer: psycopg.Connection
) -> None:
    for arguments in ("int", "int, int"):
        writer.execute(
            f"CREATE FUNCTION score({arguments}) RETURNS int LANGUAGE plpgsql STABLE"
            " AS 'BEGIN RETURN $1; END'".encode()
        )
    writer.execute("CREATE FUNCTION dice() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT 1'")
    query, session = "SELECT id, score(id) AS s FROM events", AskingSession("public")
    with pytest.raises(Volatile):
        plan(events.app, query, None, session, Pinned())
    declared = assumed(events.app, session, ["score(integer)"])
    assert declared == ["public.score(integer)"]
    planned = plan(events.app, query, None, session, Pinned(assumed=declared))
    assert planned.settings["TimeZone"]
    for wrong in (["score"], ["nowhere"], ["lower(text)"], ["dice"], "score(integer)"):
        with pytest.raises(BadSetting) as caught:
            assumed(events.app, session, wrong)
        assert caught.value.facts["name"] == "assume_immutable"


def test_declared_functions_are_recorded_and_shown(
    events: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(
        "CREATE FUNCTION score(int) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN RETURN $1; END'"
    )
    query, functions = "SELECT id, score(id) AS s FROM events", ["score(int)"]
    events.create_stream_table(
        "scores", query, initialize=False, assume_immutable=functions, schedule="5m"
    )
    shown = next(one for one in events.status() if one.name == "scores")
    assert shown.assume_immutable == ["public.score(integer)"]
    assert "public.score(integer)" in str(events.explain("scores"))
    with pytest.raises(BadSetting):
        events.create_or_replace_stream_table("scores", query, assume_immutable=["lower(text)"])
    # It is planned again from what is recorded.
    events.app.forget(events.app.named("scores").id)
    assert events.app.plan(events.app.named("scores")).blocks
