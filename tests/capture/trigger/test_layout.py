"""Partitions, children and other ways to reach a table's rows by another name: all are captured,
once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from millstream.capture.trigger import triggers
from millstream.capture.trigger.layout import trees
from millstream.catalog import sources
from millstream.catalog.installation import install
from millstream.postgres import relations
from millstream.postgres.connection import Connection, connect

if TYPE_CHECKING:
    from tests.capture.conftest import Watch

PARTITIONED = """
    CREATE TABLE orders (id int, region text, amount numeric, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
    CREATE TABLE orders_eu PARTITION OF orders FOR VALUES IN ('de', 'fr') PARTITION BY RANGE (id);
    CREATE TABLE orders_eu_1 PARTITION OF orders_eu FOR VALUES FROM (0) TO (100);
    CREATE TABLE orders_eu_2 PARTITION OF orders_eu FOR VALUES FROM (100) TO (200);
    -- Attached, with its columns in another order and with one dropped: other attnums than the root's.
    CREATE TABLE orders_us (amount numeric, gone int, region text NOT NULL, id int NOT NULL);
    ALTER TABLE orders_us DROP COLUMN gone;
    ALTER TABLE orders ATTACH PARTITION orders_us FOR VALUES IN ('us');
    INSERT INTO orders SELECT g, (ARRAY['de', 'fr', 'us'])[1 + g % 3], g FROM generate_series(1, 150) AS g;
"""

INHERITED = """
    CREATE TABLE cities (name text, people int);
    CREATE TABLE capitals (country text) INHERITS (cities);
    CREATE TABLE old_capitals (until date) INHERITS (capitals);
    INSERT INTO cities VALUES ('Lyon', 5), ('Bonn', 3);
    INSERT INTO capitals VALUES ('Paris', 9, 'fr'), ('Rome', 8, 'it');
    INSERT INTO old_capitals VALUES ('Turin', 4, 'it', '1865-01-01');
"""


@pytest.fixture
def partitioned(conn: Connection) -> None:
    conn.execute(PARTITIONED)


@pytest.fixture
def inherited(conn: Connection) -> None:
    conn.execute(INHERITED)


def level_of(conn: Connection, relid: int) -> str:
    return trees(conn, [relid])[relid].level


# -- partitions ------------------------------------------------------------------------------


@pytest.mark.usefixtures("partitioned")
def test_writes_to_root_and_leaves_are_captured_once(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    assert level_of(conn, orders.source.relid) == "STATEMENT"
    conn.execute("INSERT INTO orders VALUES (1000, 'us', 1), (99, 'de', 1) ON CONFLICT DO NOTHING")
    assert orders.check().images > 0
    for leaf, row in (("orders_eu", "(77, 'de', 1)"), ("orders_eu_2", "(199, 'fr', 1)")):
        conn.execute(f"INSERT INTO {leaf} VALUES {row} ON CONFLICT DO NOTHING")
    conn.execute("INSERT INTO orders_us VALUES (1, 'us', 2000)")
    assert orders.check().came.total() >= 2
    conn.execute("UPDATE orders SET amount = amount + 1")
    conn.execute("UPDATE orders_us SET amount = amount + 1")
    conn.execute("UPDATE ONLY orders_eu_1 SET amount = amount + 1")
    orders.check()
    conn.execute("DELETE FROM orders WHERE id < 20")
    conn.execute("DELETE FROM orders_eu WHERE id < 40")
    orders.check()


@pytest.mark.usefixtures("partitioned")
def test_a_row_that_moves_between_partitions_goes_and_comes(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    conn.execute("UPDATE orders SET region = 'us' WHERE id = 3")
    taken = orders.check()
    assert (taken.went.total(), taken.came.total()) == (1, 1)
    conn.execute("UPDATE orders SET id = id + 100 WHERE id < 50 AND region = 'de'")
    conn.execute("UPDATE orders_eu SET id = 198 WHERE id = 1")
    assert orders.check().images > 0


@pytest.mark.usefixtures("partitioned")
def test_merge_that_moves_rows_is_captured(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    conn.execute(
        "MERGE INTO orders AS t USING (SELECT g AS id FROM generate_series(100, 300) AS g) AS s ON t.id = s.id"
        " WHEN MATCHED AND t.region = 'fr' THEN DELETE WHEN MATCHED THEN UPDATE SET region = 'us'"
        " WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'us', 1)"
    )
    assert orders.check().images > 0


@pytest.mark.usefixtures("partitioned")
def test_a_move_whose_arrival_is_refused_only_goes(conn: Connection, watch: Watch) -> None:
    # The old rows then outnumber the new ones, so that rows no longer pair by their place.
    conn.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.id % 2 = 0 THEN RETURN NULL; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON orders_us FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    orders = watch("orders")
    conn.execute("UPDATE orders SET region = 'us' WHERE region = 'de'")
    taken = orders.check()
    assert taken.went.total() > taken.came.total() > 0


@pytest.mark.usefixtures("partitioned")
@pytest.mark.parametrize(("table", "marks"), [("orders", 5), ("orders_eu", 3), ("orders_us", 1)])
def test_truncate_of_any_part_leaves_marks(
    conn: Connection, watch: Watch, table: str, marks: int
) -> None:
    orders = watch("orders")
    conn.execute(f"TRUNCATE {table}")
    assert orders.skip().truncated == marks


@pytest.mark.usefixtures("partitioned")
def test_copy_into_root_and_leaf_is_captured(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    for table, rows in (
        ("orders", [(500, "us", 1), (50, "de", 1)]),
        ("orders_eu_1", [(60, "fr", 1)]),
    ):
        with conn.cursor().copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    assert orders.check().came.total() == 3


@pytest.mark.usefixtures("partitioned")
def test_a_partition_can_be_a_source_beside_its_root(conn: Connection, watch: Watch) -> None:
    orders, europe, leaf = (
        watch("orders"),
        watch("orders_eu"),
        watch("orders_eu_1", ["id", "amount"]),
    )
    assert level_of(conn, europe.source.relid) == level_of(conn, leaf.source.relid) == "ROW"
    for statement in (
        "INSERT INTO orders VALUES (80, 'us', 1), (81, 'fr', 2), (181, 'de', 3) ON CONFLICT DO NOTHING",
        "UPDATE orders SET amount = amount + 1 WHERE id % 2 = 0",
        "UPDATE orders_eu SET amount = amount + 1 WHERE id % 3 = 0",
        "UPDATE orders SET region = 'us' WHERE region = 'de' AND id < 30",
        "UPDATE orders SET id = id + 100 WHERE region = 'fr' AND id BETWEEN 51 AND 70",
        "DELETE FROM orders WHERE id < 10",
        "DELETE FROM orders_eu_1 WHERE id < 20",
        "MERGE INTO orders AS t USING (VALUES (22, 'de'), (23, 'fr')) AS s (id, region)"
        " ON t.id = s.id AND t.region = s.region WHEN MATCHED THEN DELETE"
        " WHEN NOT MATCHED THEN INSERT VALUES (id, region, 7)",
    ):
        conn.execute(statement)
        orders.check()
        europe.check()
        leaf.check()
    assert not triggers.missing(conn, orders.source.relid) + triggers.missing(
        conn, leaf.source.relid
    )
    conn.execute("TRUNCATE orders")
    assert (orders.skip().truncated, europe.skip().truncated, leaf.skip().truncated) == (5, 3, 1)


@pytest.mark.usefixtures("partitioned")
def test_row_triggers_leave_nothing_for_other_columns(conn: Connection, watch: Watch) -> None:
    leaf = watch("orders_eu_1", ["id"])
    conn.execute("UPDATE orders SET amount = amount + 1")
    assert leaf.check().images == 0


@pytest.mark.usefixtures("partitioned")
def test_attaching_and_detaching_is_drift_and_setting_up_again_marks_it(
    conn: Connection, watch: Watch
) -> None:
    orders = watch("orders")
    relid = orders.source.relid
    conn.execute("CREATE TABLE orders_jp PARTITION OF orders FOR VALUES IN ('jp')")
    assert "attached or detached" in sources.drift(conn)[relid]
    assert any("orders_jp" in gap for gap in triggers.missing(conn, relid))
    orders = watch("orders")
    assert not sources.drift(conn)
    assert not triggers.missing(conn, relid)
    conn.execute("INSERT INTO orders_jp VALUES (1, 'jp', 1)")
    assert orders.check().came.total() == 1
    conn.execute("ALTER TABLE orders DETACH PARTITION orders_jp")
    assert relid in sources.drift(conn)
    assert any("left over" in gap for gap in triggers.missing(conn, relid))
    frontier = orders.frontier
    orders = watch("orders")
    conn.execute("INSERT INTO orders_jp VALUES (2, 'jp', 1)")
    assert orders.check().images == 0, "a detached partition is not ours any more"
    orders.frontier = frontier
    assert orders.skip().changed == 1


@pytest.mark.usefixtures("partitioned")
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_detached_partition_can_go_its_own_way(
    conn: Connection, watch: Watch, isolation: str
) -> None:
    """Its triggers are still there until capture is set up again; they must not get in its users'
    way.
    """
    orders = watch("orders")
    conn.execute("INSERT INTO orders_us VALUES (1, 'us', 2000)")
    conn.execute("ALTER TABLE orders DETACH PARTITION orders_us")
    conn.execute(
        "ALTER TABLE orders_us DROP COLUMN amount; ALTER TABLE orders_us ADD COLUMN amount point"
    )
    conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    conn.execute("INSERT INTO orders_us VALUES ('us', 2001, '(1,2)')")
    conn.execute("UPDATE orders_us SET id = id + 10000")
    conn.execute("DELETE FROM orders_us")
    conn.execute("COMMIT")
    assert orders.skip().changed == 3
    watch("orders")
    functions = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'capture%'"
    assert conn.execute(functions).fetchall() == [(4,)], "one for each table that is left"


# -- children --------------------------------------------------------------------------------


@pytest.mark.usefixtures("inherited")
def test_writes_to_parent_and_children_are_captured_once(conn: Connection, watch: Watch) -> None:
    cities = watch("cities")
    assert cities.content.total() == 5
    for statement in (
        "UPDATE cities SET people = people + 1",
        "UPDATE ONLY cities SET people = people + 1",
        "UPDATE capitals SET people = people + 1",
        "UPDATE old_capitals SET people = people + 1, until = NULL",
        "INSERT INTO capitals VALUES ('Bern', 1, 'ch')",
        "INSERT INTO old_capitals VALUES ('Bonn', 3, 'de', '1990-10-03')",
        "DELETE FROM capitals WHERE name = 'Rome'",
        "DELETE FROM ONLY cities",
        "DELETE FROM cities",
    ):
        conn.execute(statement)
        assert cities.check().images > 0


@pytest.mark.usefixtures("inherited")
def test_a_child_can_be_a_source_beside_its_parent(conn: Connection, watch: Watch) -> None:
    cities, capitals = watch("cities"), watch("capitals")
    assert level_of(conn, capitals.source.relid) == "ROW"
    for statement in (
        "UPDATE cities SET people = people + 1",
        "UPDATE capitals SET country = upper(country)",
        "INSERT INTO capitals VALUES ('Bern', 1, 'ch')",
        "DELETE FROM cities WHERE people > 8",
        "UPDATE old_capitals SET people = 1",
    ):
        conn.execute(statement)
        cities.check()
        assert capitals.check().images > 0


@pytest.mark.usefixtures("inherited")
def test_writes_in_the_name_of_a_second_parent_are_captured(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE places (name text); ALTER TABLE capitals INHERIT places")
    cities = watch("cities")
    assert level_of(conn, cities.source.relid) == "ROW"
    conn.execute("UPDATE places SET name = upper(name)")
    assert cities.check().images > 0


@pytest.mark.usefixtures("inherited")
def test_a_table_that_becomes_a_child_needs_other_triggers(conn: Connection, watch: Watch) -> None:
    cities = watch("cities")
    conn.execute("CREATE TABLE places (name text); ALTER TABLE cities INHERIT places")
    assert any("another definition" in gap for gap in triggers.missing(conn, cities.source.relid))
    watch("cities")
    assert not triggers.missing(conn, cities.source.relid)
    cities.skip()
    conn.execute("DELETE FROM places WHERE name = 'Lyon'")
    assert cities.check().went.total() == 1


# -- subscriptions ---------------------------------------------------------------------------


def test_what_a_subscription_applies_is_captured(conn: Connection, database: str) -> None:
    """Apply fires row triggers only, and only those that fire always."""
    conn.execute(
        "CREATE TABLE published (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE published"
    )
    far = f"{conn.info.dbname}_far"
    conn.execute(f"CREATE DATABASE {far}")
    try:
        with connect(database.rsplit("/", 1)[0] + f"/{far}") as there:
            relid = _subscribe(conn, there, database)
            applied = _publish_and_wait(conn, there, relid)
            there.execute("DROP SUBSCRIPTION s")
        assert applied == {"I": 13, "D": 4}
    finally:
        conn.execute(f"DROP DATABASE {far} WITH (FORCE)")


def _subscribe(conn: Connection, there: Connection, database: str) -> int:
    install.install(there)
    there.execute("CREATE TABLE published (id int PRIMARY KEY, v text)")
    # The slot is made by hand: a subscription to its own cluster would wait for itself.
    conn.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    there.execute(
        f"CREATE SUBSCRIPTION s CONNECTION '{database}' PUBLICATION p"
        " WITH (create_slot = false, slot_name = 's', copy_data = false)"
    )
    relid: int = there.execute("SELECT 'published'::regclass::oid").fetchall()[0][0]
    triggers.install(there, relations.table(there, relid), ["id", "v"])
    assert level_of(there, relid) == "ROW"
    return relid


def _publish_and_wait(conn: Connection, there: Connection, relid: int) -> dict[str, int]:
    conn.execute("INSERT INTO published SELECT g, 'v' FROM generate_series(1, 10) AS g")
    conn.execute("UPDATE published SET v = 'w' WHERE id < 4")
    conn.execute("DELETE FROM published WHERE id = 10")
    deadline = time.monotonic() + 30
    while there.execute(
        "SELECT count(*), count(*) FILTER (WHERE v = 'w') FROM published"
    ).fetchall() != [(9, 3)]:
        assert time.monotonic() < deadline, "the subscription does not catch up"
        time.sleep(0.05)
    counts = (
        f"SELECT action::text, count(*) FROM millstream_changes.changes_{relid} GROUP BY action"
    )
    return dict(there.execute(counts).fetchall())
