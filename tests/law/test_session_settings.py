"""Queries that depend on session settings: exact under those of their creator, at every refresh.

The oracle is a session of the application's own, with these settings, which runs the user's query;
both sides are compared by the text that PostgreSQL prints in that session.
"""

from __future__ import annotations

import importlib
import random
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import psycopg
import pytest
from psycopg import sql

from millstream import Millstream

pytestmark = pytest.mark.spark

# The package has the function of that name; what it calls is patched in the module.
carry_out = importlib.import_module("millstream.refresh.carry_out")

TABLES = """
    CREATE TABLE events (
        id int PRIMARY KEY, shop int, at timestamptz, day date, local timestamp, length interval, price float8,
        cost money, raw bytea, note text
    );
    CREATE TABLE shops (id int PRIMARY KEY, opened date, since timestamptz, name text);
"""
SESSIONS = {
    "Berlin": {
        "TimeZone": "Europe/Berlin",
        "DateStyle": "ISO, DMY",
        "IntervalStyle": "iso_8601",
        "bytea_output": "escape",
        "default_text_search_config": "pg_catalog.german",
    },
    "Apia": {
        "TimeZone": "Pacific/Apia",
        "IntervalStyle": "sql_standard",
        "default_text_search_config": "pg_catalog.english",
    },
}
QUERIES = {
    "columns": "SELECT id, extract(hour FROM at) AS h, at::date AS d, at::time AS t, at::timestamp AS ts,"
    " at::text AS a, length::text AS l, raw::text AS r, price::text AS p, cost::text AS c,"
    " to_char(at, 'DD.MM.YYYY HH24:MI TZ') AS f, concat(at, ' ', length) AS co, format('%s', raw) AS fo,"
    " 'at ' || at AS w, to_jsonb(at) AS j, row_to_json(ROW(at, length, price)) AS ro,"
    " jsonb_build_object('x', raw) AS jo,"
    " at + interval '1 month' AS later, at - interval '1 day' AS before,"
    " make_timestamptz(2024, 3, 31, id % 24, 0, 0) AS m"
    " FROM events",
    "days": "SELECT date_trunc('day', at) AS day, count(*) AS n, max(cost) AS m FROM events GROUP BY 1",
    "lists": "SELECT shop, json_agg(at ORDER BY id) AS a,"
    " array_to_string(array_agg(length ORDER BY id), ', ') AS b FROM events GROUP BY shop",
    "parsed": "SELECT id, note::date AS d, note::timestamptz AS at FROM events"
    " WHERE note LIKE '0%' AND at >= '2024-03-31 02:30' AND day <> '01-04-2024'",
    "search": "SELECT id, to_tsvector(name) AS v, to_tsvector(name) @@ to_tsquery('Haus') AS found FROM shops",
    "compared": "SELECT e.id, s.id AS shop FROM events AS e JOIN shops AS s ON s.id = e.shop WHERE e.at > s.opened",
    "joined by day": "SELECT e.id, s.name, s.since::date AS d FROM events AS e"
    " JOIN shops AS s ON s.opened = e.at::date",
    "series": "SELECT s.id, g FROM shops AS s,"
    " generate_series(s.since, s.since + interval '3 days', interval '1 day') AS g",
    "ranked": "SELECT id, row_number() OVER (PARTITION BY at::date ORDER BY id) AS r FROM events",
}


def test_queries_are_exact_under_the_settings_of_their_creator(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(TABLES)
    rnd = random.Random(11)
    _fill(writer, rnd, 0)
    tables = list(_created(ms))
    _fill(writer, rnd, 40)
    writer.execute("DELETE FROM events WHERE id % 7 = 0")
    writer.execute("UPDATE events SET at = at + interval '5 hours', shop = 1 WHERE id % 5 = 0")
    writer.execute("UPDATE shops SET opened = opened + 1, name = name || 's' WHERE id = 0")
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    for name, session, query in tables:
        expected, actual = _rows(writer, session, query, query), _rows(writer, session, query, name)
        assert actual == expected, name
    # Another session's settings: the same rows as that one reads.
    name, session, query = next(one for one in tables if one[1] == "Berlin")
    others = {"DateStyle": "ISO, MDY", "bytea_output": "hex", **SESSIONS["Apia"]}
    report = ms.alter_stream_table(name, settings=others)
    assert report is not None
    assert report.reason == "QUERY_CHANGED"
    assert _rows(writer, "Apia", query, name) == _rows(writer, "Apia", query, query)
    assert all(ms.verify(name).ok for name, _, _ in tables)


def test_rows_that_are_evaluated_without_the_settings_are_noticed(
    ms: Millstream, writer: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A negative control: a refresh that does not set them computes the days of UTC."""
    writer.execute(TABLES)
    ms.create_stream_table(
        "days", "SELECT id, at::date AS d FROM events", settings=SESSIONS["Apia"]
    )
    _fill(writer, random.Random(3), 0)
    with monkeypatch.context() as broken:
        nothing = SimpleNamespace(under=lambda conn, settings: nullcontext())
        broken.setattr(carry_out, "session_settings", nothing)
        ms.refresh("days")
    assert not ms.verify("days").ok
    ms.refresh("days", full=True)
    assert ms.verify("days").ok


def _created(ms: Millstream) -> list[tuple[str, str, str]]:
    """Create each query under the settings of one session, the first ones of both: they share cuts."""
    sessions = list(SESSIONS)
    tables = [
        (f"st_{number}_{session.lower()}", session, query)
        for number, query in enumerate(QUERIES.values())
        for session in (sessions if number < 1 else sessions[number % 2 : number % 2 + 1])
    ]
    for name, session, query in tables:
        settings = SESSIONS[session]
        ms.create_stream_table(name, query, refresh_mode="DIFFERENTIAL", settings=settings)
    return tables


def _fill(conn: psycopg.Connection, rnd: random.Random, first: int) -> None:
    """Events around the days on which the clocks change."""
    for id in range(first, first + 20):
        at = rnd.choice(
            ["2024-03-31 00:30Z", "2024-10-27 00:30Z", "2024-10-27 01:30Z", "2024-04-01 12:00Z"]
        )
        row = (
            id, rnd.randrange(4), f"{at}", "2024-04-01", at[:-1], rnd.choice(["1 day -02:00", "3 mons", "-25:00"]),
            rnd.choice([0.1, 1e300, -2.5]), rnd.choice(["1.50", "-3.25"]), rnd.choice([b"a\\b", b"\xff\x00"]),
            rnd.choice(["01-04-2024", "02-03-2024 10:00", "x"]),
        )  # fmt: skip
        conn.execute("INSERT INTO events VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", row)
    shop = (
        first // 20,
        rnd.choice(["2024-03-31", "2024-04-01"]),
        "2024-03-30 12:00Z",
        "Hauses houses",
    )
    conn.execute("INSERT INTO shops VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING", shop)


def _rows(conn: psycopg.Connection, session: str, query: str, source: str) -> Counter[str]:
    """Return the rows of a query or a table as texts, in the columns of the query."""
    item = sql.SQL("({})").format(sql.SQL(source)) if " " in source else sql.Identifier(source)
    with conn.transaction():
        for name, value in SESSIONS[session].items():
            conn.execute(sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), value))
        described = conn.execute(sql.SQL("SELECT * FROM ({}) AS q LIMIT 0").format(sql.SQL(query)))
        names = sql.SQL(", ").join(sql.Identifier(one.name) for one in described.description or ())
        found = conn.execute(sql.SQL("SELECT ROW({})::text FROM {} AS q").format(names, item))
        return Counter(row[0] for row in found)
