"""A trigger that was dropped, disabled or changed is found, said, and closing the gap is marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.capture.trigger import triggers
from millstream.capture.trigger.inventory import gaps
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.conftest import Watch

SABOTAGE = {
    "disabled": ("ALTER TABLE t DISABLE TRIGGER millstream_insert_{}", 'insert_{} on "public"."t" is disabled'),
    "not always": ("ALTER TABLE t ENABLE TRIGGER millstream_update_{}", 'on "public"."t" is not set to ENABLE ALWAYS'),
    "replica only": ("ALTER TABLE t ENABLE REPLICA TRIGGER millstream_update_{}", "is not set to ENABLE ALWAYS"),
    "dropped": ("DROP TRIGGER millstream_delete_{} ON t", 'millstream_delete_{} on "public"."t" is missing'),
    "renamed": ("ALTER TRIGGER millstream_truncate_{} ON t RENAME TO other", 'truncate_{} on "public"."t" is missing'),
    "of another kind": (
        "CREATE OR REPLACE TRIGGER millstream_insert_{0} AFTER DELETE ON t REFERENCING OLD TABLE AS old_rows"
        " EXECUTE FUNCTION millstream_changes.capture_{0}(); ALTER TABLE t ENABLE ALWAYS TRIGGER millstream_insert_{0}",
        "has another definition",
    ),
    "all disabled": ("ALTER TABLE t DISABLE TRIGGER ALL", "is disabled"),
    # What pg_restore --disable-triggers does: the triggers are enabled again, but not always.
    "disabled and "
    "enabled": ("ALTER TABLE t DISABLE TRIGGER ALL; ALTER TABLE t ENABLE TRIGGER ALL", "not set to ENABLE ALWAYS"),
    "function gone": ("DROP FUNCTION millstream_changes.capture_{} CASCADE", "is missing"),
    "buffer gone": ("DROP TABLE millstream_changes.changes_{}", "the change buffer is missing"),
}  # fmt: skip


@pytest.mark.parametrize(("sabotage", "said"), SABOTAGE.values(), ids=SABOTAGE.keys())
def test_a_gap_is_found_and_setting_up_again_closes_and_marks_it(
    conn: Connection, watch: Watch, sabotage: str, said: str
) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = watch("t")
    relid = t.source.relid
    assert triggers.missing(conn, relid) == []
    conn.execute(sabotage.format(relid))
    assert said.format(relid) in "\n".join(triggers.missing(conn, relid))
    conn.execute("INSERT INTO t VALUES (1)")
    again = watch("t")
    assert triggers.missing(conn, relid) == []
    assert t.skip().changed == 1
    conn.execute("INSERT INTO t VALUES (2)")
    conn.execute("DELETE FROM t WHERE id = 1")
    assert again.check().images == 2


def test_many_sources_are_looked_at_together(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE c (id int)")
    relids = [watch(name).source.relid for name in "abc"]
    conn.execute(f"DROP TRIGGER millstream_insert_{relids[1]} ON b; DROP TABLE c")
    found = gaps(conn, relids)
    assert found[relids[0]] == []
    assert found[relids[1]] == [f'trigger millstream_insert_{relids[1]} on "public"."b" is missing']
    assert found[relids[2]] == ["the table was dropped"]
