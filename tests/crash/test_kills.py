"""Processes killed by SIGKILL at random named steps while writers work: what is left is exact, and
nothing is orphaned.

Each round starts a process that creates, drops or refreshes stream tables, gives one another query, moves sources to
the WAL or back, or adopts a restored copy of all that, and kills it at a failpoint. Every round is a kill: where a
process comes to its end because its work does not pass the failpoint (the table has the replica identity already),
another failpoint is drawn.
Then this process carries on: what was half done is finished by the same verb or undone by `drop`, every stream table is
compared with PostgreSQL's answer at the cut, and the objects in the database with the catalog. At the end everything is
dropped and nothing of ours is left.

    MILLSTREAM_TEST_KILLS=200 MILLSTREAM_TEST_KILLS_SEED=7 pytest tests/crash/test_kills.py
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.bundled.server import Server
from millstream.catalog import sources
from millstream.observe.failpoint import (
    ADOPT_FAILPOINTS,
    CREATE_FAILPOINTS,
    DROP_FAILPOINTS,
    FAILPOINTS,
    REDEFINE_FAILPOINTS,
    TRANSITION_FAILPOINTS,
)
from millstream.postgres.connection import Connection, connect
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.settings import Settings
from millstream.testing import oracle
from millstream.testing.restore import dump, restore
from millstream.testing.writers import SHORT, VIEWS, Writers, make_tables

if TYPE_CHECKING:
    from tests.crash.conftest import Child

KILLS = int(os.environ.get("MILLSTREAM_TEST_KILLS", "12"))
SEED = int(os.environ.get("MILLSTREAM_TEST_KILLS_SEED", "1"))

# "transition_given_up" and "transition_lost" need a server that takes its log away.
TO_WAL = TRANSITION_FAILPOINTS[: TRANSITION_FAILPOINTS.index("transition_released") + 1]
STEPS = {
    "create": (*CREATE_FAILPOINTS, *(point for point in FAILPOINTS if point != "changes_read")),
    "drop": DROP_FAILPOINTS,
    "alter": (*REDEFINE_FAILPOINTS, *(point for point in FAILPOINTS if point != "changes_read")),
    "refresh": FAILPOINTS,
    "to WAL": TO_WAL,
    "back": ("transition_returned",),
    "adopt": ADOPT_FAILPOINTS,
}
VERBS = ("create", "drop", "refresh", "move", "alter", "adopt")
# How often a failpoint is drawn in a round before it is an error that none is passed.
DRAWS = 8
NAME = "counted"
QUERY = "SELECT region, count(*) AS n, max(id) AS last FROM customers GROUP BY region"
# Other columns, another key, a source that nothing else reads.
OTHER = (
    "SELECT c.region AS id, g.title, sum(c.id) AS last FROM customers AS c JOIN regions AS g USING (region) "
    "GROUP BY 1, 2"
)
REGIONS = "CREATE TABLE regions AS SELECT DISTINCT region, upper(region) AS title FROM customers"

# Objects of ours that the catalog does not know, or that it knows and that are not there.
_ORPHANS = """
    SELECT 'state', c.relname::text FROM pg_class AS c
    WHERE c.relnamespace = 'millstream_state'::regnamespace AND c.relkind IN ('r', 'v')
        AND NOT EXISTS (SELECT FROM millstream.stream_tables AS s WHERE c.relname ~ ('\\D' || s.id || '(\\D|$)'))
    UNION ALL
    SELECT 'buffer', c.relname::text FROM pg_class AS c
    WHERE c.relnamespace = 'millstream_changes'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^changes_'
        AND NOT EXISTS (SELECT FROM millstream.sources AS s WHERE c.relname = 'changes_' || s.relid)
    UNION ALL
    SELECT 'lost buffer', s.relid::regclass::text FROM millstream.sources AS s
    WHERE to_regclass('millstream_changes.changes_' || s.relid) IS NULL
    UNION ALL
    SELECT 'trigger', t.tgname || ' on ' || t.tgrelid::regclass FROM pg_trigger AS t
    JOIN pg_proc AS p ON p.oid = t.tgfoid
    WHERE p.pronamespace = 'millstream_changes'::regnamespace
        AND NOT EXISTS (SELECT FROM millstream.sources AS s WHERE s.relid = t.tgrelid)
        AND NOT EXISTS (SELECT FROM millstream.stream_tables AS s WHERE s.relid = t.tgrelid)
    UNION ALL
    SELECT 'source of no query', d.source_relid::regclass::text FROM millstream.dependencies AS d
    JOIN millstream.stream_tables AS s ON s.id = d.stream_table_id
    WHERE strpos(s.query, (SELECT relname FROM pg_class AS c WHERE c.oid = d.source_relid)) = 0
    UNION ALL
    SELECT 'source without readers', s.relid::regclass::text FROM millstream.sources AS s
    WHERE NOT EXISTS (SELECT FROM millstream.dependencies AS d WHERE d.source_relid = s.relid)
"""

_OBJECTS = """
    SELECT 'relation', oid::regclass::text FROM pg_class WHERE oid >= 16384 AND relpersistence <> 't'
    UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT 'trigger', tgname || ' on ' || tgrelid::regclass FROM pg_trigger
    UNION ALL SELECT 'publication', pubname FROM pg_publication
    UNION ALL SELECT 'slot', slot_name FROM pg_replication_slots WHERE database = current_database() ORDER BY 1, 2
"""


class House:
    """Writers' tables with stream tables over them, and this process's way of carrying on after a
    kill.
    """

    def __init__(
        self, dsn: str, spark: SparkSession, objects: Sequence[tuple[object, ...]] = ()
    ) -> None:
        self.dsn = dsn
        self.objects = objects
        self.conn: Connection = connect(dsn)
        self.ms: Millstream = millstream.connect(
            dsn, spark=spark, settings=Settings(auto_replica_identity=True)
        )
        self.ms.app.witness = self.compare
        self.compared = Counter[str]()

    @classmethod
    def furnished(cls, dsn: str, spark: SparkSession) -> Self:
        """Create the tables and the stream tables."""
        with connect(dsn) as conn:
            make_tables(conn)
            conn.execute(REGIONS)
            objects = conn.execute(_OBJECTS).fetchall()
        house = cls(dsn, spark, objects)
        for name, query in VIEWS.items():
            house.ms.create_stream_table(name, query)
        return house

    def compare(self, now: Cut, job: Job, report: RefreshReport) -> None:
        """Compare with PostgreSQL's answer at the cut."""
        oracle.check(now.conn, {**VIEWS, NAME: job.table.query}[job.table.name], job.table.name)
        self.compared[job.table.name] += 1

    def exists(self) -> bool:
        return any(table.name == NAME for table in self.ms.status())

    def steps(self, verb: str) -> Sequence[str]:
        """Return the failpoints that the verb can pass now."""
        if verb != "move":
            return STEPS[verb]
        return STEPS[
            "back" if any(source.mode == "WAL" for source in sources.every(self.conn)) else "to WAL"
        ]

    def prepare(self, verb: str) -> None:
        """Bring about what the verb needs: no such stream table to create, one to drop."""
        if verb == "create" and self.exists():
            self.ms.drop_stream_table(NAME)
        if verb in ("drop", "alter") and not self.exists():
            self.ms.create_stream_table(NAME, QUERY)

    def other_query(self) -> str:
        """Return the one of the two queries that the stream table does not have."""
        return QUERY if self.ms.app.named(NAME).query == OTHER else OTHER

    def arguments(self, verb: str) -> list[str]:
        """Return what the process that is to be killed is started with."""
        if verb == "alter":
            return [NAME, self.other_query()]
        return {"create": [NAME, QUERY], "drop": [NAME]}.get(verb, [])

    def carry_on(self, verb: str) -> None:
        """Finish what was half done, or undo it; then refresh everything, each compared."""
        if verb == "drop" and self.exists():
            self.ms.drop_stream_table(NAME)
        if verb == "adopt":
            self.ms.adopt()
        before = self.compared.total()
        names = {table.name for table in self.ms.status()}
        self.ms.refresh_all()
        assert self.compared.total() == before + len(names)

    def orphans(self) -> list[tuple[object, ...]]:
        return self.conn.execute(_ORPHANS).fetchall()

    def close_down(self) -> None:
        """Drop everything and uninstall; nothing may be left."""
        for table in self.ms.status():
            self.ms.drop_stream_table(table.name)
        assert self.orphans() == []
        self.ms.uninstall()
        assert self.conn.execute(_OBJECTS).fetchall() == self.objects

    def close(self) -> None:
        self.ms.close()
        self.conn.close()


@pytest.fixture
def house(database: str, spark: SparkSession) -> Iterator[House]:
    running = House.furnished(database, spark)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def restored(server: Server, house: House, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Restores the house as it is now into another database, in place of the one restored before."""
    name = house.conn.info.dbname + "_restored"

    def copy() -> str:
        dump(server, house.dsn, tmp_path / "dump")
        return restore(server, tmp_path / "dump", name)

    yield copy
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.mark.spark
@pytest.mark.timeout(60 + 30 * KILLS)
def test_random_kills_at_named_steps_leave_everything_exact_and_nothing_behind(
    house: House, restored: Callable[[], str], child: Child, spark: SparkSession
) -> None:
    dice = random.Random(SEED)
    killed = Counter[str]()
    with Writers(house.dsn, seed=SEED, count=4, truncate_every=0, paces=SHORT) as writers:
        for number in range(KILLS):
            verb = VERBS[number % len(VERBS)]
            if verb == "adopt":
                point = kill_an_adoption(restored(), spark, child, dice, number)
            else:
                point = kill(house, child, verb, dice)
            killed[f"{verb} {point}"] += 1
    print(f"seed {SEED}: {killed.total()} kills", dict(killed), dict(writers.done))
    assert killed.total() == KILLS
    house.close_down()


def kill(house: House, child: Child, verb: str, dice: random.Random) -> str:
    """Kill a process at a random point of a verb, and carry on after it; return the point."""
    for _ in range(DRAWS):
        house.prepare(verb)
        point = dice.choice(house.steps(verb))
        ended = child(house.dsn, verb, *house.arguments(verb), point=point)
        assert ended.killed_at is not None or ended.code == 0, ended
        house.carry_on(verb)
        assert house.orphans() == [], (verb, point)
        if ended.killed_at:
            return point
    raise AssertionError(f"{verb} passed none of the failpoints that were drawn")


def kill_an_adoption(
    dsn: str, spark: SparkSession, child: Child, dice: random.Random, number: int
) -> str:
    """Do the same with a restored database, which has writers of its own."""
    copy = House(dsn, spark)
    try:
        with Writers(dsn, seed=1000 * SEED + number, count=3, truncate_every=0, paces=SHORT):
            return kill(copy, child, "adopt", dice)
    finally:
        copy.close()


@pytest.mark.spark
def test_adopting_killed_at_each_of_its_steps_is_finished_by_adopting_again(
    house: House, restored: Callable[[], str], child: Child, spark: SparkSession
) -> None:
    """Each process is killed one step further on than the one before it, and starts from what that
    has left.
    """
    dsn = restored()
    with Writers(dsn, seed=SEED, count=3, truncate_every=0, paces=SHORT):
        for point in ADOPT_FAILPOINTS:
            ended = child(dsn, "adopt", point=point)
            assert ended.killed_at == (point, 1), ended
        copy = House(dsn, spark)
        try:
            copy.carry_on("adopt")
            assert copy.orphans() == []
        finally:
            copy.close()


@pytest.mark.spark
def test_altering_killed_at_each_of_its_steps_leaves_the_former_query_or_the_new_one(
    house: House, child: Child
) -> None:
    """The stream table is refreshed and compared after each kill; capture follows the query that it
    has.
    """
    house.ms.create_stream_table(NAME, QUERY)
    with Writers(house.dsn, seed=SEED, count=3, truncate_every=0, paces=SHORT):
        for point in REDEFINE_FAILPOINTS:
            former, new = house.ms.app.named(NAME).query, house.other_query()
            ended = child(house.dsn, "alter", NAME, new, point=point)
            assert ended.killed_at == (point, 1), ended
            is_done = point in ("redefine_filled", "redefine_narrowed")
            assert house.ms.app.named(NAME).query == (new if is_done else former)
            house.carry_on("alter")
            assert house.orphans() == [], point
