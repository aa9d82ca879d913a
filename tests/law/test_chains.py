"""The law of chains: a stream table shows what its query over the sources gave at its
`data_timestamp`.

Random graphs of stream tables, with random schedules, are taken through random writes, ticks,
refreshes by hand, suspensions, schema changes and altered queries. Every state of the sources is
kept, so that PostgreSQL can answer any query as of any moment: a stream table in a query stands for
its own query, down to the sources.

Where an upstream stays behind (it is manual or suspended), the reader works over what is there: its
own rows are those of its query over the upstream's rows and the sources at its cut, and its data
timestamp is the least of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.bundled.server import Server
from millstream.catalog import stream_tables
from millstream.catalog.stream_tables import StreamTable

pytestmark = pytest.mark.spark

EXAMPLES = int(os.environ.get("MILLSTREAM_TEST_CHAINS", "4"))
STEPS = 14
SOURCES = ("s0", "s1", "s2")
SCHEDULES = ("continuous", "continuous", "1h", "calculated", "manual")
# Over one input or two, each with the columns id and v.
QUERIES = (
    "SELECT a.id, a.v + 1 AS v FROM {a} AS a",
    "SELECT a.id, a.v FROM {a} AS a WHERE a.v % 3 <> 0",
    "SELECT (a.v % 4)::int AS id, sum(a.v)::bigint AS v FROM {a} AS a GROUP BY a.v % 4",
    "SELECT a.id, a.v + b.v AS v FROM {a} AS a JOIN {b} AS b ON b.id = a.id",
    "SELECT a.id, coalesce(b.v, -1) AS v FROM {a} AS a LEFT JOIN {b} AS b ON b.id = a.id",
    "SELECT a.id, a.v FROM {a} AS a UNION ALL SELECT b.id, b.v FROM {b} AS b",
    "SELECT DISTINCT a.id, a.v % 2 AS v FROM {a} AS a",
)

_databases = count(1)


@dataclass
class Node:
    """A stream table: its query over two inputs, sources or other stream tables."""

    query: str
    inputs: tuple[str, str]

    def over(self, named: Callable[[str], str]) -> str:
        """Return the query, with its inputs as `named` writes them."""
        return self.query.format(a=named(self.inputs[0]), b=named(self.inputs[1]))

    @property
    def read(self) -> set[str]:
        """The inputs that the query uses."""
        return {
            name
            for letter, name in zip("ab", self.inputs, strict=True)
            if f"{{{letter}}}" in self.query
        }


@dataclass
class World:
    """The database, the stream tables in it, and all states that the sources have had."""

    conn: psycopg.Connection
    ms: Millstream
    nodes: dict[str, Node] = field(default_factory=dict)
    tables: dict[str, tuple[str, str]] = field(
        default_factory=lambda: {name: (name, "v") for name in SOURCES}
    )
    """Of each source its present name, and that of its column v."""
    moments: list[datetime] = field(default_factory=list)
    cuts: dict[str, datetime] = field(default_factory=dict)
    """When each stream table was last refreshed, as far as it was seen."""

    def change(self, statement: str) -> None:
        """Change the sources, and keep their new state."""
        self.conn.execute(statement.encode())
        number = len(self.moments)
        self.conn.execute(f"CREATE SCHEMA past_{number}".encode())
        for name, (table, column) in self.tables.items():
            self.conn.execute(
                f"CREATE TABLE past_{number}.{name} AS SELECT id, {column} AS v FROM {table}".encode()
            )
        [(moment,)] = self.conn.execute("SELECT clock_timestamp()").fetchall()
        self.moments.append(moment)

    def state_at(self, moment: datetime) -> int:
        """Return the number of the state that the sources had then."""
        return max(number for number, began in enumerate(self.moments) if began <= moment)

    def as_typed(self, name: str) -> str:
        """Return an input as a user writes it now."""
        table, column = self.tables.get(name, (name, "v"))
        return f"(SELECT id, {column} AS v FROM {table})"

    def as_of(self, name: str, state: int) -> str:
        """Return an input as it was, down to the sources."""
        if name in self.nodes:
            return f"({self.nodes[name].over(lambda one: self.as_of(one, state))})"
        return f"(SELECT id, v FROM past_{state}.{name})"

    def over_upstreams(self, name: str, state: int) -> str:
        """Return an input: the rows that a stream table has now, or a source as it was."""
        return name if name in self.nodes else self.as_of(name, state)

    # -- the law -----------------------------------------------------------------------------

    def check(self) -> None:
        """Every stream table obeys the law."""
        tables = {table.name: table for table in stream_tables.every(self.ms.app.conn)}
        for name, node in self.nodes.items():
            table = tables[name]
            if table.data_timestamp is None or table.cut_at is None:
                continue
            has_moved, self.cuts[name] = table.cut_at != self.cuts.get(name), table.cut_at
            if table.data_timestamp == table.cut_at:
                state = self.state_at(table.data_timestamp)
                self.same(name, self.as_of(name, state))
            else:
                assert not has_moved or self.has_reason(name, tables), (
                    f"{name} did not pull what it reads"
                )
                self.check_held_back(table, node, tables)

    def has_reason(self, name: str, tables: dict[str, StreamTable]) -> bool:
        """Return True if something that a stream table reads, however far up, stays as it is."""
        upstreams = [one for one in self.nodes[name].read if one in self.nodes]
        stays = [
            one
            for one in upstreams
            if tables[one].status == "SUSPENDED" or tables[one].schedule == "manual"
        ]
        return bool(stays) or any(self.has_reason(one, tables) for one in upstreams)

    def check_held_back(
        self, table: StreamTable, node: Node, tables: dict[str, StreamTable]
    ) -> None:
        """One that reads others which are behind."""
        assert table.cut_at is not None
        upstreams = [tables[name] for name in node.read if name in tables]
        if any(
            upstream.cut_at is not None and upstream.cut_at > table.cut_at for upstream in upstreams
        ):
            # Refreshed since by itself; what it held then is not kept.
            return
        moments = [upstream.data_timestamp for upstream in upstreams if upstream.data_timestamp]
        assert table.data_timestamp == min(*moments, table.cut_at)
        state = self.state_at(table.cut_at)
        self.same(table.name, f"({node.over(lambda one: self.over_upstreams(one, state))})")

    def same(self, name: str, query: str) -> None:
        """The stream table has exactly the rows of the query."""
        rows, answer = f"SELECT id, v FROM {name}", f"SELECT id, v FROM {query} AS answer"
        difference = f"({rows} EXCEPT ALL {answer}) UNION ALL ({answer} EXCEPT ALL {rows})"
        assert self.conn.execute(difference.encode()).fetchall() == [], f"{name} is not {query}"


# -- steps -----------------------------------------------------------------------------------


def write(world: World, draw: Any) -> None:
    """Rows come, go and change."""
    table, column = world.tables[draw(st.sampled_from(SOURCES))]
    id, value = draw(st.integers(1, 12)), draw(st.integers(0, 20))
    world.change(
        draw(
            st.sampled_from(
                (
                    f"INSERT INTO {table} (id, {column}) VALUES ({id}, {value})"
                    f" ON CONFLICT (id) DO UPDATE SET {column} = {value}",
                    f"UPDATE {table} SET {column} = {column} + 1 WHERE id >= {id}",
                    f"DELETE FROM {table} WHERE id = {id}",
                    f"TRUNCATE {table}",
                )
            )
        )
    )


def tick(world: World, draw: Any) -> None:
    """What is due, with what it pulls."""
    world.ms.tick()


def refresh(world: World, draw: Any) -> None:
    """One by hand, with what it reads."""
    name = draw(st.sampled_from(sorted(world.nodes)))
    world.ms.refresh(name)


def create(world: World, draw: Any) -> None:
    """Another stream table, over what there is."""
    if len(world.nodes) >= 7:
        return
    name, inputs = f"n{len(world.nodes)}", (*SOURCES, *world.nodes)
    node = Node(
        draw(st.sampled_from(QUERIES)),
        (draw(st.sampled_from(inputs)), draw(st.sampled_from(inputs))),
    )
    world.ms.create_stream_table(
        name, node.over(world.as_typed), schedule=draw(st.sampled_from(SCHEDULES))
    )
    world.nodes[name] = node


def suspend_or_resume(world: World, draw: Any) -> None:
    """A stream table stops, or goes on."""
    name = draw(st.sampled_from(sorted(world.nodes)))
    world.ms.alter_stream_table(
        name, status=draw(st.sampled_from(("SUSPENDED", "ACTIVE", "ACTIVE")))
    )


def reschedule(world: World, draw: Any) -> None:
    """A stream table gets another schedule."""
    name = draw(st.sampled_from(sorted(world.nodes)))
    world.ms.alter_stream_table(name, schedule=draw(st.sampled_from(SCHEDULES)))


def alter_source(world: World, draw: Any) -> None:
    """A source, or its column, gets another name, or a column that nobody reads."""
    name = draw(st.sampled_from(SOURCES))
    table, column = world.tables[name]
    what = draw(st.sampled_from(("table", "column", "unused")))
    if what == "table":
        new = f"{name}_{len(world.moments)}"
        world.tables[name] = (new, column)
        world.change(f"ALTER TABLE {table} RENAME TO {new}")
    elif what == "column":
        new = f"v{len(world.moments)}"
        world.tables[name] = (table, new)
        world.change(f"ALTER TABLE {table} RENAME COLUMN {column} TO {new}")
    else:
        world.change(f"ALTER TABLE {table} ADD COLUMN unused_{len(world.moments)} int")


STEP_KINDS = (
    write,
    write,
    write,
    tick,
    tick,
    refresh,
    create,
    create,
    suspend_or_resume,
    reschedule,
    alter_source,
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    # Not made smaller: each example takes seconds.
    phases=(Phase.explicit, Phase.generate),
    derandomize="MILLSTREAM_TEST_CHAINS" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_a_stream_table_shows_its_query_over_the_sources_at_its_data_timestamp(
    server: Server, spark: SparkSession, data: st.DataObject
) -> None:
    name = f"chain_{os.getpid()}_{next(_databases)}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    dsn = server.dsn_for("tester", name)
    with psycopg.connect(dsn, autocommit=True) as conn, millstream.connect(dsn, spark=spark) as ms:
        world = World(conn, ms)
        for source in SOURCES:
            conn.execute(f"CREATE TABLE {source} (id int PRIMARY KEY, v bigint NOT NULL)".encode())
        world.change(f"INSERT INTO {SOURCES[0]} SELECT i, i FROM generate_series(1, 8) AS i")
        for _ in range(3):
            create(world, data.draw)
        for _ in range(STEPS):
            step = data.draw(st.sampled_from(STEP_KINDS))
            note(step.__name__)
            step(world, data.draw)
            world.check()
        ms.tick()
        world.check()
