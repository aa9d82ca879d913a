"""What to do about a source whose capture is not complete."""

from __future__ import annotations

import psycopg

from millstream import Millstream
from millstream.service.monitoring import repair_hint


def test_a_refresh_repairs_capture_while_the_queries_are_valid(
    unfilled: Millstream, writer: psycopg.Connection
) -> None:
    relid = writer.execute("SELECT 'orders'::regclass::oid::int8").fetchall()[0][0]
    assert repair_hint.hint(unfilled.app.conn, relid, ()) == repair_hint.REPAIRED
    writer.execute("ALTER TABLE orders DROP COLUMN amount")
    hint = repair_hint.hint(unfilled.app.conn, relid, ())
    assert hint.startswith("No refresh can repair it: ")
    assert hint.endswith("millstream drop public.totals")


def test_a_source_that_nobody_reads_is_repaired_by_nobody_and_harms_nobody(
    unfilled: Millstream,
) -> None:
    assert repair_hint.hint(unfilled.app.conn, 1, ()) == repair_hint.REPAIRED
