"""Processes killed by SIGKILL at random named steps while writers work: what is left is exact, and nothing is orphaned.

Each round starts a process that creates, drops or refreshes stream tables, or moves sources to the WAL or back, and
kills it at a failpoint. Then this process carries on: what was half done is finished by the same verb or undone by
`drop`, every stream table is compared with PostgreSQL's answer at the cut, and the objects in the database are compared
with the catalog. At the end everything is dropped and nothing of ours is left.

    MILLSTREAM_TEST_KILLS=200 MILLSTREAM_TEST_KILLS_SEED=7 pytest tests/crash/test_kills.py
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.observe.failpoint import (
    CREATE_FAILPOINTS,
    DROP_FAILPOINTS,
    FAILPOINTS,
    HAND_OVER_FAILPOINTS,
)
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.settings import Settings
from millstream.store.connection import Connection, connect
from millstream.testing import oracle
from millstream.testing.writers import SHORT, VIEWS, Writers, make_tables

if TYPE_CHECKING:
    from tests.crash.conftest import Child

KILLS = int(os.environ.get("MILLSTREAM_TEST_KILLS", "12"))
SEED = int(os.environ.get("MILLSTREAM_TEST_KILLS_SEED", "1"))

# Not reached by going to the WAL and back alone: these need a server that takes its log away.
TO_WAL_AND_BACK = tuple(point for point in HAND_OVER_FAILPOINTS if point not in ("handover_given_up", "handover_lost"))
STEPS = {
    "create": (*CREATE_FAILPOINTS, *(point for point in FAILPOINTS if point != "changes_read")),
    "drop": DROP_FAILPOINTS,
    "refresh": FAILPOINTS,
    "move": TO_WAL_AND_BACK,
}
NAME = "counted"
QUERY = "SELECT region, count(*) AS n, max(id) AS last FROM customers GROUP BY region"

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
    SELECT 'source without readers', s.relid::regclass::text FROM millstream.sources AS s
    WHERE NOT EXISTS (SELECT FROM millstream.dependencies AS d WHERE d.source_relid = s.relid)
"""


class House:
    """Writers' tables with stream tables over them, and this process's way of carrying on after a kill."""

    def __init__(self, dsn: str, spark: SparkSession) -> None:
        self.dsn = dsn
        self.conn: Connection = connect(dsn)
        make_tables(self.conn)
        self.objects = self._objects()
        self.ms: Millstream = millstream.connect(dsn, spark=spark, settings=Settings(auto_replica_identity=True))
        self.ms.app.witness = self.compare
        self.compared = Counter[str]()
        for name, query in VIEWS.items():
            self.ms.create_stream_table(name, query)

    def compare(self, now: Cut, job: Job, report: RefreshReport) -> None:
        """Compare with PostgreSQL's answer at the cut."""
        oracle.check(now.conn, {**VIEWS, NAME: QUERY}[job.table.name], job.table.name)
        self.compared[job.table.name] += 1

    def exists(self) -> bool:
        return any(table.name == NAME for table in self.ms.status())

    def prepare(self, verb: str) -> None:
        """Bring about what the verb needs: no such stream table to create, one to drop."""
        if verb == "create" and self.exists():
            self.ms.drop_stream_table(NAME)
        if verb == "drop" and not self.exists():
            self.ms.create_stream_table(NAME, QUERY)

    def carry_on(self, verb: str) -> None:
        """Finish what was half done, or undo it; then refresh everything, each compared."""
        if verb == "drop" and self.exists():
            self.ms.drop_stream_table(NAME)
        before = self.compared.total()
        names = {table.name for table in self.ms.status()}
        self.ms.refresh_all()
        assert self.compared.total() == before + len(names)

    def orphans(self) -> list[tuple[object, ...]]:
        return self.conn.execute(_ORPHANS).fetchall()

    def _objects(self) -> list[tuple[object, ...]]:
        query = (
            "SELECT 'relation', oid::regclass::text FROM pg_class WHERE oid >= 16384 AND relpersistence <> 't' "
            "UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE oid >= 16384 "
            "UNION ALL SELECT 'trigger', tgname || ' on ' || tgrelid::regclass FROM pg_trigger "
            "UNION ALL SELECT 'publication', pubname FROM pg_publication "
            "UNION ALL SELECT 'slot', slot_name FROM pg_replication_slots "
            "WHERE database = current_database() ORDER BY 1, 2"
        )
        return self.conn.execute(query).fetchall()

    def close_down(self) -> None:
        """Drop everything and uninstall; nothing may be left."""
        for table in self.ms.status():
            self.ms.drop_stream_table(table.name)
        assert self.orphans() == []
        self.ms.uninstall()
        assert self._objects() == self.objects

    def close(self) -> None:
        self.ms.close()
        self.conn.close()


@pytest.fixture
def house(database: str, spark: SparkSession) -> Iterator[House]:
    running = House(database, spark)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.spark
@pytest.mark.timeout(60 + 30 * KILLS)
def test_random_kills_at_named_steps_leave_everything_exact_and_nothing_behind(house: House, child: Child) -> None:
    dice = random.Random(SEED)
    killed = Counter[str]()
    with Writers(house.dsn, seed=SEED, count=4, truncate_every=0, paces=SHORT) as writers:
        for number in range(KILLS):
            verb = list(STEPS)[number % len(STEPS)]
            point = dice.choice(STEPS[verb])
            house.prepare(verb)
            arguments = [NAME, QUERY] if verb == "create" else [NAME] if verb == "drop" else []
            ended = child(house.dsn, verb, *arguments, point=point)
            assert ended.killed_at is not None or ended.code == 0, ended
            killed[f"{verb} {point}" if ended.killed_at else f"{verb} survived {point}"] += 1
            house.carry_on(verb)
            assert house.orphans() == [], (verb, point)
    print(f"seed {SEED}:", dict(killed), dict(writers.done))
    assert sum(count for what, count in killed.items() if "survived" not in what) >= KILLS * 0.7
    house.close_down()
