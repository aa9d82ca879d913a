"""Staging tables: shared by stream tables of one shape, cleared for each, never left large."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream import Millstream
from millstream.postgres.connection import Connection
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.store import staging
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff
from millstream.testing.kinds import KINDS, make_table

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(ms: Millstream, database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        for number in range(3):
            make_table(conn, f"t{number}")
        yield conn


def change(writer: psycopg.Connection, number: int) -> None:
    writer.execute(
        f"DELETE FROM t{number} WHERE id IN (9, {number + 4}); UPDATE t{number} SET v = v + {number} WHERE k = 1;"
        f"INSERT INTO t{number} SELECT n, {number}, n, 'y' FROM generate_series(20, 22 + {number}) AS n".encode()
    )


def exact(ms: Millstream) -> None:
    """Have each refresh compared with PostgreSQL's own answer, at the cut."""

    def check(now: Cut, job: Job, report: RefreshReport) -> None:
        oracle.check(now.conn, job.table.query, job.table.qualified)

    ms.app.witness = check


def staged(conn: Connection) -> list[str]:
    rows = conn.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND starts_with(relname, 'ms_')"
    )
    return sorted(name for (name,) in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_stream_tables_of_one_shape_share_staging_tables_and_each_is_exact(
    ms: Millstream, writer: psycopg.Connection, kind: str
) -> None:
    """Each stream table had staging tables of its own, and each commit truncated those of all."""
    exact(ms)
    counts = []
    for number in range(3):
        query = KINDS[kind].format(t=f"t{number}")
        ms.create_stream_table(f"s{number}", query, schedule="1h", refresh_mode="DIFFERENTIAL")
        change(writer, number)
        ms.refresh(f"s{number}")
        counts.append(len(staged(ms.app.conn)))
    assert counts[0] == counts[1] == counts[2]
    for _ in range(2):
        for number in range(3):
            writer.execute(
                f"UPDATE t{number} SET v = v + 1, k = (k + 1) % 3 WHERE id % 2 = {number % 2}".encode()
            )
            writer.execute(
                f"UPDATE t{number} SET id = CASE id WHEN 1 THEN 31 ELSE 1 END WHERE id IN (1, 31)".encode()
            )
        assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    assert {
        report.action for report in (ms.refresh(f"s{number}", full=True) for number in range(3))
    } == {"FULL"}
    assert len(staged(ms.app.conn)) == counts[0]


def test_a_stream_table_that_fails_leaves_no_rows_for_those_that_share_its_staging_tables(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    exact(ms)
    for number in range(3):
        query = f"SELECT k, sum(v) AS v, 1 / count(*) FILTER (WHERE s <> 'bad') AS part FROM t{number} GROUP BY k"
        ms.create_stream_table(
            f"s{number}", query, schedule="continuous", refresh_mode="DIFFERENTIAL"
        )
    for number in range(3):
        change(writer, number)
    writer.execute("INSERT INTO t1 VALUES (50, 77, 1, 'bad')")
    assert {report.name: report.action for report in ms.tick()} == {
        "s0": "DIFFERENTIAL",
        "s2": "DIFFERENTIAL",
    }
    writer.execute(
        "DELETE FROM t1 WHERE id = 50; UPDATE t0 SET v = 50 WHERE id = 1; UPDATE t2 SET v = 50 WHERE id = 1"
    )
    end_backoff(ms.app.conn)
    assert {report.action for report in ms.tick()} == {"DIFFERENTIAL"}
    assert all(ms.verify(f"s{number}").ok for number in range(3))


def test_columns_of_other_types_modifiers_or_collations_are_staged_apart(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """Numbers of two digits after the point, staged where one digit fits, would be rounded
    silently.
    """
    exact(ms)
    writer.execute(
        'CREATE TABLE shapes (id int PRIMARY KEY, a numeric(10,1), b numeric(10,2), c text, d text COLLATE "C");'
        "INSERT INTO shapes VALUES (1, 1.5, 1.25, 'b', 'b'), (2, 2.5, 2.25, 'B', 'B'), (3, 3.5, 3.25, 'a', 'a')"
    )
    counts = []
    for column in "abcd":
        query = (
            f"SELECT {column} AS k, max({column}) AS m, count(*) AS n FROM shapes GROUP BY {column}"
        )
        ms.create_stream_table(f"s_{column}", query, schedule="1h", refresh_mode="DIFFERENTIAL")
        counts.append(len(staged(ms.app.conn)))
    assert counts == sorted(set(counts))
    writer.execute("UPDATE shapes SET a = a + 1, b = b + 0.01, c = upper(c), d = upper(d)")
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}


def test_large_staging_tables_are_emptied_when_the_cut_has_ended(
    ms: Millstream, writer: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "LARGE_BYTES", 1 << 13)
    writer.execute(
        "INSERT INTO t0 SELECT n, n, n, repeat('z', 100) FROM generate_series(100, 2000) AS n"
    )
    ms.create_stream_table("s0", "SELECT id, v, s FROM t0", schedule="1h")
    sizes = "SELECT pg_relation_size(oid) FROM pg_class WHERE relnamespace = pg_my_temp_schema()"
    assert max(size for (size,) in ms.app.conn.execute(sizes)) <= 1 << 13
    writer.execute("UPDATE t0 SET v = v + 1")
    assert ms.refresh("s0").rows_updated == 1910
    assert ms.verify("s0").ok


def test_a_type_can_be_dropped_once_no_stream_table_reads_it(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE moods (id int PRIMARY KEY, m mood)"
    )
    ms.create_stream_table(
        "by_mood", "SELECT m, count(*) AS n FROM moods GROUP BY m", schedule="1h"
    )
    writer.execute("INSERT INTO moods VALUES (1, 'sad')")
    assert ms.refresh("by_mood").action == "DIFFERENTIAL"
    ms.drop_stream_table("by_mood")
    writer.execute("DROP TABLE moods; DROP TYPE mood")
