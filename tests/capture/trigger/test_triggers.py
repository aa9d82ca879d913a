"""Every way to change a table leaves in the buffer exactly what it changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from millstream.capture.buffer.slices import buffer_name
from millstream.capture.trigger import triggers
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.conftest import Watch

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(12,2), note text)"

# Each starts from rows 1..5 of one customer.
STATEMENTS = {
    "insert": "INSERT INTO orders VALUES (6, 1, 6, 'six'), (7, 1, 7, 'seven')",
    "insert of nothing": "INSERT INTO orders SELECT * FROM orders WHERE false",
    "insert from itself": "INSERT INTO orders SELECT id + 10, customer, amount, note FROM orders",
    "update": "UPDATE orders SET amount = amount + 1 WHERE id > 2",
    "update of the key": "UPDATE orders SET id = id + 100",
    "update that swaps": "UPDATE orders SET amount = 6 - amount",
    "update to NULL": "UPDATE orders SET amount = NULL, note = NULL WHERE id = 1",
    "update of nothing": "UPDATE orders SET amount = 0 WHERE false",
    "delete": "DELETE FROM orders WHERE id IN (2, 4)",
    "delete of all": "DELETE FROM orders",
    "on conflict do update": "INSERT INTO orders VALUES (1, 1, 9, 'x'), (8, 1, 8, 'y')"
    " ON CONFLICT (id) DO UPDATE SET amount = excluded.amount",
    "on conflict do nothing": "INSERT INTO orders VALUES (1, 1, 9, 'x'), (8, 1, 8, 'y') ON CONFLICT DO NOTHING",
    "merge": "MERGE INTO orders AS t USING (VALUES (1, 10), (2, 20), (9, 90)) AS s (id, amount) ON t.id = s.id"
    " WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET amount = s.amount"
    " WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1, s.amount, 'merged')",
    "data-modifying CTEs": "WITH gone AS (DELETE FROM orders WHERE id = 1 RETURNING *), more AS"
    " (INSERT INTO orders SELECT id + 50, customer, amount, note FROM gone RETURNING *)"
    " UPDATE orders SET amount = 0 WHERE id = 2",
    "two CTEs of one kind": "WITH a AS (DELETE FROM orders WHERE id = 1), b AS (DELETE FROM orders WHERE id = 2)"
    " DELETE FROM orders WHERE id = 3",
}


@pytest.fixture
def orders(conn: Connection) -> None:
    conn.execute(ORDERS)
    conn.execute("INSERT INTO orders SELECT g, 1, g, 'n' || g FROM generate_series(1, 5) AS g")


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_a_statement_leaves_what_it_changed(conn: Connection, watch: Watch, statement: str) -> None:
    orders = watch("orders")
    conn.execute(statement)
    orders.check()


@pytest.mark.usefixtures("orders")
def test_many_statements_of_one_transaction_add_up(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    with conn.transaction():
        for statement in (
            "insert",
            "update",
            "delete",
            "on conflict do update",
            "update of the key",
        ):
            conn.execute(STATEMENTS[statement])
    assert orders.check().images > 0


@pytest.mark.usefixtures("orders")
def test_copy_leaves_every_row(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    with conn.cursor().copy("COPY orders FROM STDIN") as copy:
        for id in range(100, 600):
            copy.write_row((id, 2, id, None))
    assert orders.check().came.total() == 500


@pytest.mark.usefixtures("orders")
def test_truncate_leaves_one_mark(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    with conn.transaction():
        conn.execute("TRUNCATE orders")
        conn.execute("INSERT INTO orders VALUES (1, 1, 1, '')")
    taken = orders.skip()
    assert (taken.truncated, taken.images) == (1, 1)
    conn.execute("DELETE FROM orders")
    orders.check()


@pytest.mark.usefixtures("orders")
def test_cascades_of_foreign_keys_are_captured(conn: Connection, watch: Watch) -> None:
    conn.execute(
        "CREATE TABLE lines (id int, order_id int REFERENCES orders ON DELETE CASCADE ON UPDATE CASCADE, n int);"
        "CREATE TABLE tags (order_id int REFERENCES orders ON DELETE SET NULL ON UPDATE CASCADE, tag text);"
        "INSERT INTO lines SELECT g, 1 + g % 5, g FROM generate_series(1, 20) AS g;"
        "INSERT INTO tags SELECT 1 + g % 5, 't' FROM generate_series(1, 20) AS g"
    )
    orders, lines, tags = watch("orders"), watch("lines"), watch("tags")
    conn.execute("DELETE FROM orders WHERE id IN (1, 2)")
    conn.execute("UPDATE orders SET id = id * 10")
    assert lines.check().images == 8 + 2 * 12
    assert tags.check().images > 0
    orders.check()


@pytest.mark.usefixtures("orders")
def test_truncate_cascade_marks_each_table_it_empties(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE lines (order_id int REFERENCES orders)")
    orders, lines = watch("orders"), watch("lines")
    conn.execute("TRUNCATE orders CASCADE")
    assert (orders.skip().truncated, lines.skip().truncated) == (1, 1)


@pytest.mark.usefixtures("orders")
def test_writes_of_a_replica_session_are_captured(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    conn.execute("SET session_replication_role = replica")
    conn.execute(STATEMENTS["insert"])
    conn.execute(STATEMENTS["update"])
    conn.execute(STATEMENTS["delete"])
    assert orders.check().images == 2 + 2 * 5 + 2
    conn.execute("TRUNCATE orders")
    assert orders.skip().truncated == 1


@pytest.mark.usefixtures("orders")
def test_what_is_rolled_back_leaves_nothing(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    with conn.transaction(force_rollback=True):
        conn.execute(STATEMENTS["delete of all"])
    assert orders.check().images == 0


@pytest.mark.usefixtures("orders")
def test_savepoints_keep_and_drop_their_own(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    with conn.transaction():
        conn.execute("UPDATE orders SET amount = 10 WHERE id = 1")
        with conn.transaction(force_rollback=True):
            conn.execute("DELETE FROM orders")
        with conn.transaction():
            conn.execute("INSERT INTO orders VALUES (6, 1, 6, NULL)")
            with conn.transaction(force_rollback=True):
                conn.execute("UPDATE orders SET amount = 0")
    taken = orders.check()
    assert (taken.came.total(), taken.went.total()) == (2, 1)
    xids = conn.execute(
        f"SELECT count(DISTINCT xid) FROM {buffer_name(orders.source.relid).as_string()}"
    ).fetchall()
    assert xids == [(1,)], "rows carry the top-level transaction, not the savepoint's"


@pytest.mark.usefixtures("orders")
def test_prepared_transactions_count_from_their_commit(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    conn.execute("BEGIN")
    conn.execute("UPDATE orders SET amount = 100 WHERE id = 1")
    conn.execute("PREPARE TRANSACTION 'p1'")
    conn.execute("UPDATE orders SET amount = 200 WHERE id = 2")
    assert orders.check().images == 2
    conn.execute("COMMIT PREPARED 'p1'")
    assert orders.check().images == 2
    conn.execute("BEGIN")
    conn.execute("DELETE FROM orders")
    conn.execute("PREPARE TRANSACTION 'p2'")
    conn.execute("ROLLBACK PREPARED 'p2'")
    assert orders.check().images == 0


def test_a_table_without_a_key_keeps_its_duplicates(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE bag (a int, b text)")
    bag = watch("bag")
    conn.execute("INSERT INTO bag SELECT 1, 'x' FROM generate_series(1, 5)")
    assert bag.check().came.total() == 5
    conn.execute("DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag LIMIT 2)")
    assert bag.check().went.total() == 2
    conn.execute("UPDATE bag SET b = 'y'")
    conn.execute("INSERT INTO bag VALUES (NULL, NULL), (NULL, NULL)")
    bag.check()


@pytest.mark.usefixtures("orders")
def test_an_update_of_other_columns_leaves_nothing(conn: Connection, watch: Watch) -> None:
    orders = watch("orders", ["id", "amount"])
    conn.execute("UPDATE orders SET note = 'other'")
    assert orders.check().images == 0
    conn.execute(
        "UPDATE orders SET note = 'more', amount = CASE WHEN id = 3 THEN 33 ELSE amount END"
    )
    assert orders.check().images == 2, "only the pair that differs"


def test_an_update_to_an_equal_but_different_value_is_captured(
    conn: Connection, watch: Watch
) -> None:
    conn.execute("CREATE TABLE t (id int, n numeric, f float8, j json)")
    conn.execute("""INSERT INTO t VALUES (1, 1.0, '0', '{"a": 1}')""")
    t = watch("t")
    conn.execute("UPDATE t SET n = 1.00")
    assert t.check().images == 2
    conn.execute("UPDATE t SET f = '-0'")
    assert t.check().images == 2
    conn.execute("""UPDATE t SET j = '{"a":  1}'""")
    assert t.check().images == 2
    conn.execute("UPDATE t SET n = n, f = f, j = j, id = id")
    assert t.check().images == 0


@pytest.mark.usefixtures("orders")
def test_a_source_of_no_columns_counts_its_rows(conn: Connection, watch: Watch) -> None:
    orders = watch("orders", [])
    conn.execute("UPDATE orders SET amount = 0")
    assert orders.check().images == 0
    conn.execute(STATEMENTS["insert"])
    conn.execute(STATEMENTS["delete"])
    taken = orders.check()
    assert (taken.came.total(), taken.went.total()) == (2, 2)


@pytest.mark.usefixtures("orders")
def test_what_the_users_triggers_do_is_captured(conn: Connection, watch: Watch) -> None:
    conn.execute(
        "CREATE FUNCTION round_up() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.amount = ceil(NEW.amount); IF NEW.id = 13 THEN RETURN NULL; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER a_before BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION round_up();"
        "CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF pg_trigger_depth() = 1 THEN UPDATE orders SET note = 'seen'; END IF; RETURN NULL; END $$;"
        "CREATE TRIGGER z_after AFTER INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION follow()"
    )
    orders = watch("orders")
    conn.execute("INSERT INTO orders VALUES (12, 1, 1.5, ''), (13, 1, 1.5, '')")
    conn.execute("UPDATE orders SET amount = amount + 0.1")
    assert orders.check().images > 0


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_every_isolation_level_is_captured(conn: Connection, watch: Watch, isolation: str) -> None:
    orders = watch("orders")
    conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    for statement in ("insert", "update", "delete", "merge", "insert of nothing"):
        conn.execute(STATEMENTS[statement])
    conn.execute("COMMIT")
    assert orders.check().images > 0


@pytest.mark.usefixtures("orders")
def test_a_statement_that_changes_nothing_takes_no_transaction_id(
    conn: Connection, watch: Watch
) -> None:
    watch("orders")
    with conn.transaction():
        conn.execute("DELETE FROM orders WHERE false")
        assert conn.execute("SELECT pg_current_xact_id_if_assigned()").fetchall() == [(None,)]


@pytest.mark.usefixtures("orders")
def test_capture_opens_no_subtransaction(conn: Connection, watch: Watch) -> None:
    # An EXCEPTION block would: the row's own xmin would then be a sub-transaction's, not the
    # top-level one's.
    orders = watch("orders")
    conn.execute(STATEMENTS["insert"])
    query = f"SELECT bool_and(xmin::text = xid::text) FROM {buffer_name(orders.source.relid).as_string()}"
    assert conn.execute(query).fetchall() == [(True,)]


@pytest.mark.usefixtures("orders")
def test_removing_capture_leaves_the_table_as_it_was(conn: Connection, watch: Watch) -> None:
    orders = watch("orders")
    assert triggers.remove(conn, orders.source.relid)
    conn.execute(STATEMENTS["insert"])
    query = (
        "SELECT (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = %s),"
        " (SELECT count(*) FROM pg_class WHERE relnamespace = 'millstream_changes'::regnamespace),"
        " (SELECT count(*) FROM pg_proc WHERE proname LIKE 'capture%%')"
    )
    assert conn.execute(query, (orders.source.relid,)).fetchall() == [(0, 0, 0)]
    assert triggers.remove(conn, orders.source.relid), "twice is as good as once"


@pytest.mark.usefixtures("orders")
def test_removing_capture_of_a_dropped_table_removes_its_capture_objects(
    conn: Connection, watch: Watch
) -> None:
    orders = watch("orders")
    conn.execute("DROP TABLE orders")
    assert triggers.remove(conn, orders.source.relid)
    query = "SELECT count(*) FROM pg_class WHERE relnamespace = 'millstream_changes'::regnamespace"
    assert conn.execute(query).fetchall() == [(0,)]


@pytest.mark.usefixtures("orders")
def test_two_sessions_write_through_one_function(
    watch: Watch, another: Callable[[], Connection]
) -> None:
    orders = watch("orders")
    first, second = another(), another()
    for turn in range(20):
        session = first if turn % 2 else second
        session.execute("INSERT INTO orders VALUES (%s, 1, 1, NULL)", (100 + turn,))
        session.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (100 + turn,))
    assert orders.check().images == 60
