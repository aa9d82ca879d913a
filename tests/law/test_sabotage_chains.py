"""Negative controls for outer joins, marks and chains of blocks: break each rule, and the law must
notice.

Like `test_sabotage.py`: stream tables that are right, one batch of changes that waits, one broken
rule per test. What is decided while planning is broken while a stream table is created: its first
content is wrong, and it is not made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from psycopg import sql
from tests.law.sabotages import Sabotage, Sabotages

from millstream.algebra.block import Block, Branch, Edge, Leaf, Match, Pair
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Aggregate, Join, Relation, Scan
from millstream.compiler.blocks import chain, flatten, region
from millstream.compiler.blocks.demand import KeyMessage, messages
from millstream.compiler.blocks.flatten import FlatBranch
from millstream.compiler.blocks.region import OuterJoin, OuterKind, Region
from millstream.compiler.clauses import build
from millstream.compiler.clauses.groups import group_by
from millstream.compiler.decorrelate import bindings, restrict_groups
from millstream.compiler.decorrelate.bindings import Bindings
from millstream.compiler.lowering import left_join, mark_join, matching, null_extended
from millstream.compiler.lowering.context import Lowering
from millstream.compiler.placement.place import Placer
from millstream.errors import MillstreamError
from millstream.postgres.composed import Printed
from millstream.refresh.reads import access_paths, demand
from millstream.store import state
from millstream.store.names import BlockNames

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = pytest.mark.spark

# The package has the function of that name; its table of kinds is in the module.
match = importlib.import_module("millstream.compiler.lowering.match")

SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, region text, credit int);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int, note text);
CREATE TABLE lefts (k int); CREATE TABLE rights (k int, tag text); CREATE TABLE lone (tag text);
CREATE TABLE more (tag text);
INSERT INTO customers VALUES (1, 'north', 3), (2, 'south', 5), (3, 'north', 4), (4, 'east', 2), (5, 'west', 9);
INSERT INTO orders VALUES
    (1, 1, 10, 'a'), (2, 1, 20, NULL), (3, 2, 30, 'b'), (4, NULL, 5, 'c'), (5, 3, 1, 'a'), (6, 9, 7, NULL);
INSERT INTO lefts VALUES (1), (2); INSERT INTO rights VALUES (2, 'both'), (3, 'alone');
INSERT INTO lone VALUES ('x'), ('y'); INSERT INTO more VALUES ('p')
"""

TABLES = {
    "left": "SELECT c.id, o.id AS its FROM customers AS c LEFT JOIN orders AS o ON o.customer = c.id",
    "theta": "SELECT c.id, o.id AS its FROM customers AS c"
    " LEFT JOIN orders AS o ON o.customer = c.id AND o.amount > c.credit",
    "full": "SELECT c.id, o.id AS its FROM customers AS c FULL JOIN orders AS o ON o.customer = c.id",
    "mark": "SELECT id, EXISTS (SELECT 1 FROM orders AS o WHERE o.customer = c.id) AS any FROM customers AS c",
    "absent": "SELECT id FROM customers AS c WHERE NOT EXISTS (SELECT 1 FROM orders AS o WHERE o.customer = c.id)",
    "unknown": "SELECT id, id NOT IN (SELECT customer FROM orders) AS none FROM customers",
    # Rows of a full join that stand alone meet those of a table that nothing ties to them.
    "alone": "SELECT x.tag, l.k, r.k AS other FROM lone AS x"
    " CROSS JOIN (lefts AS l FULL JOIN rights AS r ON r.k = l.k)",
    "spread": "SELECT x.tag, l.k, r.k AS other FROM more AS x"
    " CROSS JOIN (lefts AS l FULL JOIN rights AS r ON r.k = l.k) WHERE r.tag = 'alone'",
    "nested": "SELECT q.region, max(q.n) AS most, sum(q.total) AS total"
    " FROM (SELECT c.region, o.customer, count(*) AS n, sum(o.amount) AS total"
    " FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region, o.customer)"
    " AS q GROUP BY q.region",
    # What a subquery is given: a NULL too, and what is of nothing.
    "given": "SELECT o.id, (SELECT count(*) FROM customers AS c WHERE c.credit > o.amount) AS n FROM orders AS o",
    "same": "SELECT o.id, r.id AS other FROM orders AS o JOIN orders AS r ON r.note IS NOT DISTINCT FROM o.note",
}

CHANGES = (
    # One of two goes: the row around still meets the other. The last one goes, and a first one
    # comes.
    "DELETE FROM orders WHERE id = 1",
    "DELETE FROM orders WHERE id = 3",
    "INSERT INTO orders VALUES (10, 4, 8, 'new')",
    # A second one comes; one is not enough any more, in the theta; one side alone, and both.
    "INSERT INTO orders VALUES (11, 3, 9, 'b')",
    "UPDATE customers SET credit = 8 WHERE id = 3",
    "UPDATE orders SET customer = 5 WHERE id = 6",
    "DELETE FROM customers WHERE id = 5",
    "INSERT INTO customers VALUES (9, 'east', 1)",
    "UPDATE orders SET customer = 2 WHERE customer IS NULL",
    "INSERT INTO orders VALUES (12, 2, NULL, NULL)",
    # Of the full join below the cross join only one side changes; of the other, only what is joined
    # to it.
    "INSERT INTO rights VALUES (7, 'late')",
    "INSERT INTO more VALUES ('q')",
)


@pytest.fixture(scope="module")
def changed(module_law: Law) -> Law:
    """Stream tables that are right, and changes that wait."""
    return module_law.waiting(SETUP, TABLES, CHANGES)


# -- while refreshing ------------------------------------------------------------------------

SABOTAGES = Sabotages()
breaks = SABOTAGES.breaks


@breaks("left", "theta")
def left_join_forgets_the_rows_that_meet_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(match.KINDS, "left", match.KINDS["inner"])


@breaks("full")
def full_join_forgets_one_side(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(match.KINDS, "full", match.KINDS["left"])


def extended_by(change: Callable[[str], str]) -> Sabotage:
    """Other rows that meet nothing."""
    alone = null_extended.row_alone

    def wrong(name: null_extended.Name) -> str:
        return change(alone(name))

    def sabotage(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(null_extended, "row_alone", wrong)

    return sabotage


@breaks("left", "full")
def padding_looks_at_the_new_version_only(patch: pytest.MonkeyPatch) -> None:
    extended_by(lambda s: s.replace("_was = 0L", "_is = 0L"))(patch)


@breaks("left", "full")
def padding_stays_when_a_partner_comes(patch: pytest.MonkeyPatch) -> None:
    extended_by(lambda s: s.replace("_is = 0L", "_was = 0L"))(patch)


@breaks("mark", "absent")
def mark_join_keeps_the_old_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mark_join, "IS", matching.WAS)


@breaks("mark", "absent")
def mark_join_takes_the_new_mark_for_the_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mark_join, "WAS", matching.IS)


@breaks("theta")
def matching_forgets_what_else_must_be_true(patch: pytest.MonkeyPatch) -> None:
    def keys_alone(node: Match, ctx: Lowering) -> str:
        return left_join.left_join(replace(node, residual=()), ctx)

    patch.setitem(match.KINDS, "left", keys_alone)


@breaks("left", "full", "mark", "absent")
def demand_does_not_complete(patch: pytest.MonkeyPatch) -> None:
    # Of two partners one goes; the other is not read, and the row seems to meet nothing.
    def never(edge: Edge, sender: str) -> bool:
        return False

    patch.setattr(Edge, "complete", never)


def sent(change: Callable[[KeyMessage], KeyMessage]) -> Sabotage:
    """Other messages."""

    def wrong(
        branch: Branch, holders: Sequence[str], sizes: Mapping[str, float]
    ) -> list[KeyMessage]:
        return [change(message) for message in messages(branch, holders, sizes)]

    return lambda patch: patch.setattr(demand, "messages", wrong)


@breaks("spread")
def demand_does_not_spread(patch: pytest.MonkeyPatch) -> None:
    sent(lambda message: replace(message, spreads=False))(patch)


@breaks("alone")
def demand_does_not_look_behind_the_sender(patch: pytest.MonkeyPatch) -> None:
    sent(lambda message: replace(message, behind=frozenset({message.sender})))(patch)


@breaks("same")
def demand_forgets_that_nulls_are_equal(patch: pytest.MonkeyPatch) -> None:
    sent(lambda message: replace(message, nulls=()))(patch)


@breaks("given", "same")
def matching_forgets_that_nulls_are_equal(patch: pytest.MonkeyPatch) -> None:
    def plain(pair: Pair) -> Expr:
        return Expr(f"{pair.one.sql} = {pair.other.sql}")

    patch.setattr(Pair, "condition", property(plain))


def images(change: Callable[[str, sql.Composed], sql.Composable]) -> Sabotage:
    """Other images of an inner block's rows."""
    honest = state.images_sql

    def wrong(block: Block, names: BlockNames, action: str) -> sql.Composable:
        return change(action, honest(block, names, action))

    return lambda patch: patch.setattr(state, "images_sql", wrong)


@breaks("nested")
def images_of_what_was_are_lost(patch: pytest.MonkeyPatch) -> None:
    images(lambda action, honest: sql.SQL("SELECT 1") if action == "D" else honest)(patch)


@breaks("nested", "unknown")
def images_of_what_is_are_lost(patch: pytest.MonkeyPatch) -> None:
    images(lambda action, honest: sql.SQL("SELECT 1") if action == "I" else honest)(patch)


@breaks("nested")
def images_that_differ_are_taken_for_equal(patch: pytest.MonkeyPatch) -> None:
    honest = state.unchanged_sql
    patch.setattr(
        state,
        "unchanged_sql",
        lambda block, names: Printed(honest(block, names).as_string().split(" AND min(")[0] + ")"),
    )


CONTROLS = [(name, table) for name, (_, tables) in SABOTAGES.items() for table in tables]


@pytest.mark.parametrize(("sabotage", "table"), CONTROLS, ids=[" ".join(pair) for pair in CONTROLS])
def test_the_law_notices(
    sabotage: str, table: str, changed: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    SABOTAGES[sabotage][0](monkeypatch)
    assert changed.broken_by(table) is not None


@pytest.mark.parametrize("name", TABLES)
def test_unbroken_the_same_refresh_is_right(name: str, changed: Law) -> None:
    changed.refresh(name)


# -- while planning --------------------------------------------------------------------------


def refused_or_wrong(law: Law, query: str) -> bool:
    """Does creating a stream table fail, or find its first content wrong?"""
    try:
        law.create("sabotaged", query)
    except (AssertionError, MillstreamError):
        return True
    law.ms.drop_stream_table("sabotaged")
    return False


PADDED = "SELECT c.id FROM customers AS c LEFT JOIN orders AS o ON o.customer = c.id WHERE coalesce(o.amount, 0) = 0"
COMPUTED = (
    "SELECT c.id, q.word FROM customers AS c"
    " LEFT JOIN (SELECT customer, coalesce(note, 'none') AS word FROM orders) AS q ON q.customer = c.id"
)
CONSTANT = (
    "SELECT c.id, q.met FROM customers AS c LEFT JOIN (SELECT customer, true AS met FROM orders) AS q"
    " ON q.customer = c.id"
)
SHARED = (
    "SELECT a.customer, a.n, b.n AS large FROM (SELECT customer, count(*) AS n FROM orders GROUP BY customer) AS a"
    " JOIN (SELECT customer, count(*) AS n FROM orders WHERE amount > 8 GROUP BY customer) AS b USING (customer)"
)


def padding_is_always_null(patch: pytest.MonkeyPatch) -> None:
    def plain(placer: Placer, expression: Expr, leaf: Leaf, scan: Scan, ref: Expr) -> Expr:
        return ref

    patch.setattr(Placer, "_null_extended", plain)


def computed_columns_are_not_null_extended(patch: pytest.MonkeyPatch) -> None:
    def plain(node: Join, kind: OuterKind, left: FlatBranch, right: FlatBranch) -> FlatBranch:
        assert node.condition is not None
        inside = {**left.outputs, **right.outputs}
        outer = OuterJoin(kind, left.region, right.region, (node.condition.substitute(inside),))
        return FlatBranch(Region((outer,)), inside)

    patch.setattr(flatten, "_outer", plain)


def constants_are_of_no_side(patch: pytest.MonkeyPatch) -> None:
    """A constant is computed beside any table, and shows where its side has no match."""
    patch.setattr(region, "_anchors", lambda region: frozenset())


def blocks_that_differ_are_one(patch: pytest.MonkeyPatch) -> None:
    def same(relation: Relation) -> str:
        return "the same"

    patch.setattr(chain, "canonical", same)


def values_that_meet_nothing_are_lost(patch: pytest.MonkeyPatch) -> None:
    def groups_alone(groups: Aggregate, given: Bindings, fresh: Callable[[str], str]) -> Aggregate:
        return groups

    patch.setattr(group_by, "one_row_per_binding", groups_alone)


def windows_forget_what_is_given(patch: pytest.MonkeyPatch) -> None:
    def unchanged(expression: Expr, keys: Sequence[Expr]) -> Expr:
        return expression

    patch.setattr(build, "partition_windows", unchanged)


def equalities_of_nulls_are_plain(patch: pytest.MonkeyPatch) -> None:
    def plain(one: Expr, other: Expr) -> Expr:
        return Expr.parse(f"({one.sql}) = ({other.sql})")

    patch.setattr(bindings, "not_distinct", plain)


def optional_rows_are_taken_for_certain(patch: pytest.MonkeyPatch) -> None:
    """Groups are kept for too few: those that ON of an outer join names."""

    def inner(relation: Relation) -> Relation:
        return replace(relation, kind="inner") if isinstance(relation, Join) else relation

    certain, conditions = restrict_groups._certain, restrict_groups._conditions
    patch.setattr(restrict_groups, "_certain", lambda relation: certain(inner(relation)))
    patch.setattr(restrict_groups, "_conditions", lambda relation: conditions(inner(relation)))


def any_columns_are_a_key(patch: pytest.MonkeyPatch) -> None:
    """Groups are kept of rows that count as often as they are asked for."""
    patch.setattr(restrict_groups, "_covers_key", lambda outer_scan, equalities: bool(equalities))


BESIDE_ITS_GROUP = (
    "SELECT b.id, a.id AS other, (SELECT count(*) FROM orders AS p WHERE p.customer = a.customer) AS n"
    " FROM orders AS b JOIN orders AS a ON b.customer = a.customer WHERE a.amount < 15"
)
ASKED_IN_ON = (
    "SELECT c.id, o.id AS its, (SELECT count(*) FROM orders AS p WHERE p.customer = c.id) AS n"
    " FROM customers AS c LEFT JOIN orders AS o ON o.customer = c.id AND c.region = 'north'"
)
NUMBERED = (
    "SELECT o.id, q.place FROM orders AS o, LATERAL (SELECT row_number() OVER (ORDER BY c.id) AS place"
    " FROM customers AS c WHERE c.credit > o.amount) AS q"
)
PLANS: dict[Sabotage, str] = {
    values_that_meet_nothing_are_lost: TABLES["given"],
    windows_forget_what_is_given: NUMBERED,
    equalities_of_nulls_are_plain: TABLES["given"],
    padding_is_always_null: PADDED,
    computed_columns_are_not_null_extended: COMPUTED,
    constants_are_of_no_side: CONSTANT,
    blocks_that_differ_are_one: SHARED,
    optional_rows_are_taken_for_certain: ASKED_IN_ON,
    any_columns_are_a_key: BESIDE_ITS_GROUP,
}


@pytest.mark.parametrize("sabotage", PLANS, ids=lambda one: one.__name__)
def test_the_law_notices_a_wrong_plan(sabotage: Sabotage, changed: Law) -> None:
    with pytest.MonkeyPatch.context() as patch:
        sabotage(patch)
        assert refused_or_wrong(changed, PLANS[sabotage])
    assert not refused_or_wrong(changed, PLANS[sabotage])


def test_images_that_cancel_cause_no_lookups_unless_they_are_not_consolidated(
    changed: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Netting saves reading: what was changed and is as it was asks for nothing."""
    changed.create("netted", TABLES["left"])

    def paths() -> set[str]:
        changed.change("UPDATE customers SET region = 'x' || region")
        (report,) = changed.refresh("netted")
        return {one.path for one in report.inputs}

    assert paths() == {"changes"}

    def as_they_are(rows: pa.Table) -> pa.Table:
        return rows

    monkeypatch.setattr(access_paths, "_consolidated", as_they_are)
    assert paths() != {"changes"}


def test_every_rule_is_sabotaged() -> None:
    rules = {"left", "full", "padding", "mark", "matching", "demand", "images"}
    assert rules == {name.split("_")[0] for name in SABOTAGES}
