"""Negative controls for recursion: leave a step out, and the law must notice.

Like `test_sabotage.py`: stream tables that are right, one batch of changes that waits, one broken
rule per test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from millstream.compiler.blocks import recursion_block
from millstream.postgres.composed import Printed
from millstream.refresh.recursion import RecursionRefresh
from millstream.store import recursion

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = pytest.mark.spark

SETUP = """
CREATE TABLE roots (id int); CREATE TABLE edges (s int, d int);
INSERT INTO roots VALUES (1);
INSERT INTO edges VALUES (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (5, 6), (1, 7), (7, 8), (8, 9)
"""
TABLES = {
    "each": "WITH RECURSIVE r AS (SELECT id FROM roots UNION SELECT e.d FROM r JOIN edges AS e ON e.s = r.id) "
    "SELECT id FROM r",
    "all": "WITH RECURSIVE r AS (SELECT id FROM roots UNION ALL SELECT e.d FROM r JOIN edges AS e ON e.s = r.id) "
    "SELECT id FROM r",
}
CHANGES = (
    # 4 is still reached by 3, and what follows from it; 7 is not, nor what follows.
    "DELETE FROM edges WHERE (s, d) IN ((2, 4), (1, 7))",
    # 8 leads back to 7: no reason to stay. Something new, and what follows from it.
    "INSERT INTO edges VALUES (8, 7), (6, 10), (10, 11)",
)


@pytest.fixture(scope="module")
def changed(module_law: Law) -> Law:
    """Stream tables that are right, and changes that wait."""
    return module_law.waiting(SETUP, TABLES, CHANGES)


def nothing_is_rederived(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecursionRefresh, "_rederive", lambda recursing: None)


def nothing_is_overdeleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecursionRefresh, "_overdelete", lambda recursing: False)


def overdeleting_stops_at_the_first_step(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recursion, "lost_with_sql", lambda *given: sql.SQL("SELECT 1 WHERE false"))


def what_is_taken_out_still_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recursion, "take_out_sql", lambda names: sql.SQL("SELECT 1"))


def what_is_new_leads_nowhere(patch: pytest.MonkeyPatch) -> None:
    honest = RecursionRefresh._step

    def only_backwards(
        recursing: RecursionRefresh, relation: sql.Identifier, number: int, run: int
    ) -> bool:
        return relation != recursing.names.steps and honest(recursing, relation, number, run)

    patch.setattr(RecursionRefresh, "_step", only_backwards)


def levels_forget_the_changes_themselves(patch: pytest.MonkeyPatch) -> None:
    honest = recursion.level_sql
    patch.setattr(
        recursion,
        "level_sql",
        lambda block, names, level: Printed(
            honest(block, names, level).as_string().replace("IN (0, ", "IN (")
        ),
    )


SABOTAGES: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    nothing_is_rederived: "each",
    nothing_is_overdeleted: "each",
    overdeleting_stops_at_the_first_step: "each",
    what_is_taken_out_still_counts: "each",
    what_is_new_leads_nowhere: "each",
    levels_forget_the_changes_themselves: "all",
}


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda one: one.__name__)
def test_the_law_notices(
    sabotage: Callable[[pytest.MonkeyPatch], None], changed: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    assert changed.broken_by(SABOTAGES[sabotage]) is not None


def test_the_law_notices_that_levels_do_not_lead_on(
    changed: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    what_is_new_leads_nowhere(monkeypatch)
    assert changed.broken_by("all") is not None


@pytest.mark.parametrize("name", TABLES)
def test_unbroken_the_same_refresh_is_right(name: str, changed: Law) -> None:
    changed.refresh(name)


def test_derivations_must_not_cancel(module_law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """One way to a row goes, another comes, from a row that is reached by this way alone."""
    module_law.change("CREATE TABLE ways (s int, d int); INSERT INTO ways VALUES (1, 2), (2, 3)")
    query = TABLES["each"].replace("edges", "ways")
    with monkeypatch.context() as patch:
        patch.setattr(recursion_block._Branch, "_support", lambda branch: [])
        module_law.create("cancelled", query)
    module_law.create("told_apart", query)
    module_law.change("DELETE FROM ways WHERE s = 1; INSERT INTO ways VALUES (3, 2)")
    assert module_law.broken_by("cancelled") is not None
    module_law.refresh("told_apart")
