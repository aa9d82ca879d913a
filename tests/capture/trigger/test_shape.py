"""A source that changes under us never breaks its users' writes, and never passes unnoticed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from millstream.capture.trigger import triggers
from millstream.catalog import sources
from millstream.errors import SourceChanged
from millstream.postgres import relations
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.conftest import Watch, Watched

# Changes of a captured column, and how a row is inserted after each.
CHANGES = {
    "dropped": ("ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (9)"),
    "renamed": ("ALTER TABLE t RENAME COLUMN v TO w", "INSERT INTO t VALUES (9, '9')"),
    "names swapped": (
        "ALTER TABLE t RENAME v TO tmp; ALTER TABLE t RENAME id TO v; ALTER TABLE t RENAME tmp TO id",
        "INSERT INTO t VALUES (9, '9')",
    ),
    "retyped": ("ALTER TABLE t ALTER COLUMN v TYPE int USING v::int", "INSERT INTO t VALUES (9, 9)"),
    "retyped without a rewrite": ("ALTER TABLE t ALTER COLUMN v TYPE varchar", "INSERT INTO t VALUES (9, '9')"),
    "retyped to what has no cast": (
        "ALTER TABLE t ALTER COLUMN v TYPE point USING point(1, 2)",
        "INSERT INTO t VALUES (9, '(1,2)')",
    ),
    "dropped and made again": (
        "ALTER TABLE t DROP COLUMN v; ALTER TABLE t ADD COLUMN v text",
        "INSERT INTO t VALUES (9, '9')",
    ),
}  # fmt: skip
changes = pytest.mark.parametrize(("ddl", "insert"), CHANGES.values(), ids=CHANGES.keys())


@pytest.fixture
def t(conn: Connection, watch: Watch) -> Watched:
    """A captured table whose writers have used the capture function before: their plans are cached."""
    conn.execute("CREATE TABLE t (id int, v text, unused int)")
    watched = watch("t", ["id", "v"])
    conn.execute("INSERT INTO t VALUES (1, '1'), (2, '2'), (3, '3')")
    conn.execute("UPDATE t SET v = v || '0'")
    conn.execute("DELETE FROM t WHERE id = 3")
    watched.check()
    return watched


def marks(t: Watched) -> tuple[int, int]:
    """How many X and how many images wait."""
    where = f"FROM millstream_changes.changes_{t.source.relid} WHERE NOT pg_visible_in_snapshot(xid, '{t.frontier}')"
    row = t.reader.execute(
        f"SELECT count(*) FILTER (WHERE action = 'X'), count(*) FILTER (WHERE action <> 'X') {where}"
    )
    changed, images = row.fetchall()[0]
    return changed, images


@changes
def test_writes_of_the_same_session_go_on_and_are_marked(
    conn: Connection, t: Watched, ddl: str, insert: str
) -> None:
    conn.execute(ddl)
    conn.execute(insert)
    conn.execute("UPDATE t SET unused = 1")
    conn.execute("DELETE FROM t")
    assert marks(t) == (3, 0)
    assert t.source.relid in sources.drift(conn)


@changes
def test_writes_of_another_session_go_on_and_are_marked(
    conn: Connection, another: Callable[[], Connection], t: Watched, ddl: str, insert: str
) -> None:
    writer = another()
    writer.execute("INSERT INTO t VALUES (4, '4')")
    conn.execute(ddl)
    writer.execute(insert)
    assert marks(t)[0] == 1
    writer.execute("DELETE FROM t")
    assert marks(t)[0] == 2


@changes
def test_writes_in_the_transaction_of_the_change_go_on_and_are_marked(
    conn: Connection, t: Watched, ddl: str, insert: str
) -> None:
    with conn.transaction():
        conn.execute("INSERT INTO t VALUES (4, '4')")
        conn.execute(ddl)
        conn.execute(insert)
    assert marks(t) == (1, 1)


@changes
def test_writes_under_an_older_snapshot_go_on_and_are_marked(
    conn: Connection, another: Callable[[], Connection], t: Watched, ddl: str, insert: str
) -> None:
    """A query of the catalog would answer with the columns of yesterday."""
    writer = another()
    writer.execute("INSERT INTO t VALUES (4, '4')")
    writer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    writer.execute("SELECT count(*) FROM pg_class")
    conn.execute(ddl)
    writer.execute(insert)
    writer.execute("COMMIT")
    assert marks(t)[0] == 1
    # What that transaction saw must not be remembered for the next.
    writer.execute(insert)
    assert marks(t)[0] == 2


@changes
def test_a_copy_that_waited_for_the_change_goes_on_and_is_marked(
    conn: Connection, another: Callable[[], Connection], t: Watched, ddl: str, insert: str
) -> None:
    """COPY takes its snapshot before its lock: what it sees of the catalog is older than what it
    writes to.
    """
    writer = another()
    writer.execute("INSERT INTO t VALUES (4, '4')")
    row = [part.strip("' ") for part in insert.split("VALUES (")[1].rstrip(")").split(", ")]
    with conn.transaction():
        conn.execute(ddl)
        copying = threading.Thread(
            target=_copy, args=(writer, [*row, *[None] * (len(_columns(conn)) - len(row))])
        )
        copying.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass"
        while conn.execute(waiting).fetchall() == [(0,)]:
            pass
    copying.join()
    assert marks(t)[0] == 1


def _columns(conn: Connection) -> list[str]:
    query = "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"
    return [name for (name,) in conn.execute(query)]


def _copy(writer: Connection, row: list[str | None]) -> None:
    with writer.cursor().copy("COPY t FROM STDIN") as copy:
        copy.write_row(row)


def test_changes_of_other_columns_are_nobodys_business(conn: Connection, t: Watched) -> None:
    conn.execute("ALTER TABLE t DROP COLUMN unused")
    conn.execute("ALTER TABLE t ADD COLUMN more text DEFAULT 'x'")
    conn.execute("INSERT INTO t VALUES (9, '9')")
    conn.execute("ALTER TABLE t RENAME COLUMN more TO most")
    conn.execute("CREATE INDEX ON t (id)")
    conn.execute("DELETE FROM t")
    t.check()
    assert not sources.drift(conn)


def test_a_wider_varchar_is_drift_under_any_snapshot(
    conn: Connection, another: Callable[[], Connection], watch: Watch
) -> None:
    conn.execute("CREATE TABLE t (id int, v varchar(2))")
    t = watch("t")
    writer = another()
    writer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    writer.execute("SELECT 1")
    conn.execute("ALTER TABLE t ALTER COLUMN v TYPE varchar(20)")
    writer.execute("INSERT INTO t VALUES (1, 'longer than two')")
    writer.execute("COMMIT")
    assert "another type" in sources.drift(conn)[t.source.relid]


def test_a_missing_buffer_does_not_break_writes(conn: Connection, t: Watched) -> None:
    conn.execute(f"DROP TABLE millstream_changes.changes_{t.source.relid}")
    for isolation in ("READ COMMITTED", "REPEATABLE READ"):
        conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        conn.execute("INSERT INTO t VALUES (9, '9')")
        conn.execute("UPDATE t SET v = 'x'")
        conn.execute("DELETE FROM t WHERE id = 9")
        conn.execute("COMMIT")
    conn.execute("TRUNCATE t")
    assert "the change buffer is missing" in triggers.missing(conn, t.source.relid)


def test_dropping_our_schemas_by_hand_does_not_break_writes(conn: Connection, t: Watched) -> None:
    conn.execute("DROP SCHEMA millstream CASCADE")
    conn.execute("INSERT INTO t VALUES (9, '9')")
    conn.execute("DROP SCHEMA millstream_changes CASCADE")
    conn.execute("UPDATE t SET v = 'x'")
    assert conn.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchall() == [
        (0,)
    ]


# -- setting up again ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ddl",
    [
        ddl
        for name, (ddl, _) in CHANGES.items()
        if name not in ("dropped", "renamed", "names swapped")
    ],
    ids=[name for name in CHANGES if name not in ("dropped", "renamed", "names swapped")],
)
def test_setting_up_again_marks_the_change_even_if_nothing_was_written(
    conn: Connection, watch: Watch, t: Watched, ddl: str
) -> None:
    conn.execute(ddl)
    again = watch("t", ["id", "v"])
    assert marks(t) == (1, 0), "whoever reads from before the change is told"
    assert not sources.drift(conn)
    conn.execute("INSERT INTO t (id) VALUES (9)")
    conn.execute("UPDATE t SET v = NULL")
    conn.execute("DELETE FROM t WHERE id = 1")
    assert again.check().images > 0, "whoever reads from after it is not"


@pytest.mark.parametrize("name", ["dropped", "renamed"])
def test_setting_up_again_for_a_column_that_is_gone_is_refused(
    conn: Connection, t: Watched, name: str
) -> None:
    conn.execute(CHANGES[name][0])
    with pytest.raises(SourceChanged, match="has changed"):
        triggers.install(conn, relations.table(conn, t.source.relid), ["id", "v"])


def test_setting_up_again_leaves_out_what_is_gone_and_not_asked_for(
    conn: Connection, watch: Watch, t: Watched
) -> None:
    conn.execute("ALTER TABLE t DROP COLUMN v")
    again = watch("t", ["id"])
    assert [column.name for column in again.source.columns] == ["id"]
    conn.execute("INSERT INTO t VALUES (9)")
    assert again.check().came.total() == 1
    assert marks(t) == (1, 1)


def test_setting_up_again_what_is_whole_marks_nothing(
    conn: Connection, watch: Watch, t: Watched
) -> None:
    watch("t", ["id", "v"])
    watch("t", ["unused"])
    conn.execute("INSERT INTO t VALUES (9, '9')")
    assert marks(t) == (0, 1)
