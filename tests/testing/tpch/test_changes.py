"""Changes of TPC-H: they reach every table and every query, and a seed decides them."""

from __future__ import annotations

import pytest

from millstream.postgres.connection import Connection
from millstream.testing.tpch.changes import ALWAYS, SQL, STEPS, WIDE, TpchChanges
from millstream.testing.tpch.load import load, sizes
from millstream.testing.tpch.queries import queries

SCALE = 0.01


def answers(conn: Connection) -> dict[str, list[str]]:
    """What PostgreSQL answers to each query."""
    found = {}
    for name, query in queries(SCALE).items():
        rows = conn.execute(f"SELECT q::text FROM ({query}) AS q".encode())
        found[name] = sorted(row for (row,) in rows)
    return found


def test_changes_reach_every_table_and_every_query(conn: Connection) -> None:
    load(conn, SCALE)
    changes = TpchChanges(conn, share=0.01, every=True)
    changed, before = set[str](), answers(conn)
    for _ in range(5):
        changes.cycle()
        after = answers(conn)
        changed |= {name for name in after if after[name] != before[name]}
        before = after
    assert changed == set(queries(SCALE))
    # Before the second cycle there is no new nation or region to go.
    assert [name for name, rows in changes.log.items() if rows == 0] == []


def test_the_same_seed_makes_the_same_changes(conn: Connection) -> None:
    load(conn, SCALE)
    found = []
    for seed in (1, 1, 2):
        with conn.transaction(force_rollback=True):
            changes = TpchChanges(conn, seed=seed, every=True)
            changes.cycle()
            found.append((changes.log.copy(), sizes(conn), answers(conn)))
    assert found[0] == found[1]
    assert found[0] != found[2]


@pytest.mark.parametrize("share", [0.0001, 0.001, 0.01])
def test_the_share_is_the_share_of_the_orders_turned_over(conn: Connection, share: float) -> None:
    load(conn, SCALE)
    changes = TpchChanges(conn, share=share)
    changes.cycle()
    assert changes.turned == changes.log["rf2"] == max(1, round(share * 15_000))


def test_every_change_has_its_statement() -> None:
    assert {step.name for step in STEPS} | {*ALWAYS, *WIDE, "rf1", "rf2", "functions"} == set(SQL)
