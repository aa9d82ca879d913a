"""Negative controls: break each rule on purpose, and the law must notice.

A check that cannot fail proves nothing. All stream tables here are right, and one batch of changes
waits; each test breaks one rule, refreshes a table that depends on it, and sees the refresh fail. A
failed refresh is rolled back, so the next test finds everything as it was. At the end the same
refreshes, unbroken, are right.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from psycopg import sql
from tests.law.sabotages import Sabotage, Sabotages

from millstream.algebra.block import (
    Accumulator,
    AggregateHead,
    BlockColumn,
    Branch,
    Match,
    PairsBlock,
    Read,
)
from millstream.algebra.relation import Filter, Project, Relation
from millstream.compiler import lowering
from millstream.compiler.blocks.demand import KeyMessage, messages
from millstream.compiler.lowering import consolidate
from millstream.compiler.lowering.aggregate import _best, _sum
from millstream.compiler.lowering.context import NET, Lowering
from millstream.compiler.lowering.restrict import restrict
from millstream.refresh import evaluate
from millstream.refresh.reads import demand, pairs
from millstream.refresh.reads.access_paths import AccessPaths
from millstream.refresh.reads.demand import read_demanded
from millstream.refresh.reads.input_rows import InputRows

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = pytest.mark.spark

Items = Sequence[sql.Composable]
Composed = sql.Composed

# The package has the function of that name; the rules are patched in the module.
aggregate = importlib.import_module("millstream.compiler.lowering.aggregate")

SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, region text, credit int);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(12,2), quantity int, weight float8, note text);
CREATE TABLE visits (customer int, page text, seconds int);
INSERT INTO customers VALUES (1, 'north', 3), (2, 'south', 5), (3, 'north', 4), (4, 'east', 2);
INSERT INTO orders VALUES
    (1, 1, 10.00, 5, 0.5, 'a'), (2, 1, 20.00, 4, 1.5, 'b'), (3, 2, 30.00, 6, 2.5, NULL), (4, 2, 5.00, 1, 0.25, 'a'),
    (5, 3, 7.50, 9, 1.0, 'b'), (6, NULL, 1.00, 2, 4.0, 'c'), (7, 3, NULL, NULL, NULL, 'a'),
    (8, 4, 2.00, 3, 2.0, 'east'), (11, NULL, 0.50, 1, 1.0, 'c'), (12, 5, 3.00, 1, 1.0, 'last'),
    (14, 4, 6.00, 50, 1.0, 'home'), (15, 1, 0.25, 1, 1.0, 'b'), (17, 1, 1.50, 1, 1.0, 'home');
INSERT INTO visits VALUES
    (1, 'home', 3), (1, 'home', 3), (2, 'home', 9), (2, NULL, 1), (3, 'cart', 5), (4, NULL, 8), (NULL, 'home', 2)
"""

TABLES = {
    "joined": "SELECT o.id, c.region, o.amount FROM orders AS o JOIN customers AS c ON c.id = o.customer",
    "filtered": "SELECT o.id, c.region FROM orders AS o JOIN customers AS c ON c.id = o.customer"
    " WHERE o.quantity > c.credit",
    "bag": "SELECT page FROM visits",
    "alike": "SELECT o.id, c.id AS c FROM orders AS o JOIN customers AS c ON starts_with(c.region, o.note)",
    # Equal rows of the body that are made of different rows.
    "pages": "SELECT v.page FROM visits AS v JOIN customers AS c ON c.id = v.customer",
    "cheapest": "SELECT c.region, min(o.amount) AS least FROM orders AS o JOIN customers AS c ON c.id = o.customer"
    " GROUP BY c.region",
    "united": "SELECT customer FROM orders UNION ALL SELECT customer FROM visits",
    "chain": "SELECT v.page, c.region, o.id FROM visits AS v JOIN customers AS c ON c.id = v.customer"
    " JOIN orders AS o ON o.customer = c.id",
    # In its middle, one row is found by two columns.
    "crossed": "SELECT c.region, o.id, v.seconds FROM customers AS c JOIN orders AS o ON o.customer = c.id"
    " JOIN visits AS v ON v.page = o.note",
    "totals": "SELECT c.region, count(*) AS n, count(o.quantity) AS told, sum(o.amount) AS total,"
    " sum(o.quantity * c.credit) AS product"
    " FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region",
    "extremes": "SELECT customer, min(amount) AS least, max(quantity) AS most FROM orders GROUP BY customer",
    "digits": "SELECT customer, sum(trim_scale(amount))::text AS shown FROM orders GROUP BY customer",
    "floats": "SELECT customer, sum(weight) AS weight FROM orders GROUP BY customer",
    # Of its two parts, the first finds a group's rows only by reading everything.
    "mixed": "SELECT u.word, max(u.n) AS most FROM (SELECT coalesce(v.page, c.region) AS word, v.seconds AS n"
    " FROM visits AS v JOIN customers AS c ON c.id = v.customer UNION ALL SELECT note, quantity FROM orders) AS u"
    " GROUP BY u.word",
}

CHANGES = (
    # Both sides of one pair at once.
    "UPDATE customers SET region = 'west', credit = 1 WHERE id = 1",
    "UPDATE orders SET amount = amount + 1, quantity = quantity + 1 WHERE id = 1",
    "INSERT INTO orders VALUES (9, 1, 4.00, 2, 0.75, NULL)",
    # A pair that goes with both its sides; key and value in one update.
    "DELETE FROM orders WHERE id = 5",
    "DELETE FROM customers WHERE id = 3",
    "UPDATE orders SET customer = 1, amount = 99 WHERE id = 4",
    # The least and the most of a group that stays.
    "UPDATE orders SET amount = 40, quantity = 2 WHERE id = 3",
    "INSERT INTO orders VALUES (10, 2, 50.00, NULL, NULL, 'home')",
    # Equal rows: one of two goes, one of one becomes two; one comes and goes.
    "DELETE FROM visits WHERE ctid = (SELECT min(ctid) FROM visits WHERE page = 'home' AND customer = 1)",
    "INSERT INTO visits VALUES (2, 'home', 9), (1, 'cart', 1), (4, 'gone', 1)",
    "DELETE FROM visits WHERE page = 'gone' OR seconds = 8",
    "INSERT INTO orders VALUES (13, 2, 0.01, 1000, 1.0, 'gone')",
    "DELETE FROM orders WHERE id IN (11, 12, 13)",
    "UPDATE orders SET note = 'z' WHERE id = 2",
    "UPDATE orders SET note = 'b' WHERE id = 2",
    # The same in both parts of a union; a pair that never was, of the old amount and the new
    # region.
    "INSERT INTO orders VALUES (16, 77, 1.00, 1, 1.0, 'b')",
    "INSERT INTO visits VALUES (77, 'home', 1)",
    "UPDATE orders SET amount = 60 WHERE id = 15",
)


@pytest.fixture(scope="module")
def changed(module_law: Law) -> Law:
    """Stream tables that are right, and changes that wait."""
    return module_law.waiting(SETUP, TABLES, CHANGES)


# -- the sabotages ---------------------------------------------------------------------------

SABOTAGES = Sabotages()
breaks = SABOTAGES.breaks


def rewritten(rule: type[Relation], change: Callable[[str], str]) -> Sabotage:
    """A rule whose SELECT is changed as text."""
    honest = lowering.RULES[rule]

    def dishonest(node: Relation, ctx: Lowering) -> str:
        step = honest(node, ctx)
        name, select = ctx.steps[-1]
        assert change(select) != select, f"the sabotage changes nothing in {select}"
        ctx.steps[-1] = (name, change(select))
        return step

    return lambda patch: patch.setitem(lowering.RULES, rule, dishonest)


@breaks("joined", "bag")
def read_swaps_the_versions(patch: pytest.MonkeyPatch) -> None:
    rewritten(
        Read, lambda s: s.replace("__before, __after", "__after AS __before, __before AS __after")
    )(patch)


@breaks("joined", "chain")
def read_takes_every_image_for_a_deleted_one(patch: pytest.MonkeyPatch) -> None:
    rewritten(Read, lambda s: s.replace("__before,", "ABS(__before) AS __before,"))(patch)


@breaks("filtered")
def filter_lets_everything_pass(patch: pytest.MonkeyPatch) -> None:
    rewritten(Filter, lambda s: s.split(" WHERE ")[0])(patch)


@breaks("filtered")
def filter_drops_what_was(patch: pytest.MonkeyPatch) -> None:
    rewritten(Filter, lambda s: s + " AND __before >= 0")(patch)


@breaks("alike")
def pairs_forget_that_both_sides_changed(patch: pytest.MonkeyPatch) -> None:
    honest = pairs.joined_sql

    def dishonest(block: PairsBlock, items: Items, net: sql.Composable, filters: Items) -> Composed:
        return honest(block, items, sql.SQL("0") if "*" in net.as_string() else net, filters)

    patch.setattr(pairs, "joined_sql", dishonest)


@breaks("alike")
def pairs_are_never_lost(patch: pytest.MonkeyPatch) -> None:
    honest = pairs.joined_sql

    def dishonest(block: PairsBlock, items: Items, net: sql.Composable, filters: Items) -> Composed:
        return honest(block, items, sql.SQL("greatest({}, 0)").format(net), filters)

    patch.setattr(pairs, "joined_sql", dishonest)


@breaks("totals")
def project_computes_something_else(patch: pytest.MonkeyPatch) -> None:
    rewritten(Project, lambda s: s.replace(" * ", " + ") if " * " in s else s + " ")(patch)


@breaks("joined", "bag", "extremes")
def project_forgets_multiplicities(patch: pytest.MonkeyPatch) -> None:
    rewritten(Project, lambda s: s.replace("__before, __after", "1 AS __before, __after"))(patch)


@breaks("joined", "totals", "chain")
def inner_join_adds_instead_of_multiplying(patch: pytest.MonkeyPatch) -> None:
    rewritten(Match, lambda s: s.replace("l.__before * r.__before", "l.__before + r.__before"))(
        patch
    )


@breaks("joined", "totals", "chain")
def inner_join_mixes_the_versions(patch: pytest.MonkeyPatch) -> None:
    # The rule that counts a pair twice when both of its sides have changed.
    rewritten(Match, lambda s: s.replace("l.__before * r.__before", "l.__before * r.__after"))(
        patch
    )


@breaks("joined", "chain")
def inner_join_forgets_its_condition(patch: pytest.MonkeyPatch) -> None:
    rewritten(Match, lambda s: s.split(" ON ")[0] + " ON true")(patch)


@breaks("united")
def union_all_drops_a_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lowering, "union_all", lambda parts, ctx: parts[0])


@breaks("united", "mixed")
def union_all_removes_duplicates(patch: pytest.MonkeyPatch) -> None:
    def distinct(parts: Sequence[str], ctx: Lowering) -> str:
        return ctx.step("united", " UNION ".join(f"SELECT * FROM {part}" for part in parts))

    patch.setattr(lowering, "union_all", distinct)


@breaks("pages")
def net_counts_each_row_once(patch: pytest.MonkeyPatch) -> None:
    def once(step: str, columns: Sequence[BlockColumn]) -> str:
        return consolidate.consolidate_select(step, columns).replace("SUM(", "MAX(")

    patch.setattr(lowering, "consolidate_select", once)


@breaks("cheapest")
def net_keeps_what_cancels(patch: pytest.MonkeyPatch) -> None:
    # The old amount in the new region would be the least of its group.
    patch.setattr(aggregate, "consolidate_rows", consolidate.difference_rows)


def instead_of(function: str, expression: str) -> Sabotage:
    """Another sum for one of the accumulators."""

    def wrong(one: Accumulator) -> str:
        return expression.format(column=one.column) if one.function == function else _sum(one)

    return lambda patch: patch.setattr(aggregate, "_sum", wrong)


@breaks("totals", "extremes", "floats")
def aggregate_counts_rows_without_weights(patch: pytest.MonkeyPatch) -> None:
    instead_of("rows", "COUNT(*)")(patch)


@breaks("totals")
def aggregate_counts_nulls_as_present(patch: pytest.MonkeyPatch) -> None:
    instead_of("present", f"COALESCE(SUM({NET}), 0)")(patch)


@breaks("totals")
def aggregate_adds_without_weights(patch: pytest.MonkeyPatch) -> None:
    instead_of("total", "COALESCE(SUM(CAST({column} AS DECIMAL(30,2))), 0)")(patch)


@breaks("floats")
def aggregate_adds_floats_that_went(patch: pytest.MonkeyPatch) -> None:
    instead_of("total", "COALESCE(SUM({column}), 0) + 1")(patch)


@breaks("digits")
def aggregate_counts_digits_that_went(patch: pytest.MonkeyPatch) -> None:
    instead_of("reaching", "COUNT(*)")(patch)


@breaks("extremes", "mixed")
def aggregate_does_not_see_an_extreme_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(aggregate, "_best", lambda one, sign: _best(one, f"{sign} AND {NET} > 0"))


@breaks("extremes")
def aggregate_takes_values_that_went(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        aggregate, "_best", lambda one, sign: _best(one, "<> 0" if sign == "> 0" else sign)
    )


@breaks("extremes")
def aggregate_takes_the_other_end(patch: pytest.MonkeyPatch) -> None:
    swap = {"MIN": "MAX", "MAX": "MIN"}

    def other(one: Accumulator, sign: str) -> str:
        text = _best(one, sign)
        return swap[text[:3]] + text[3:]

    patch.setattr(aggregate, "_best", other)


@breaks("mixed")
def restrict_lets_other_groups_through(patch: pytest.MonkeyPatch) -> None:
    def everything(step: str, head: AggregateHead, view: str, ctx: Lowering) -> str:
        return step

    patch.setattr(lowering, "restrict", everything)


@breaks("extremes")
def restrict_loses_the_group_of_null(patch: pytest.MonkeyPatch) -> None:
    def equal(step: str, head: AggregateHead, view: str, ctx: Lowering) -> str:
        name = restrict(step, head, view, ctx)
        ctx.steps[-1] = (ctx.steps[-1][0], ctx.steps[-1][1].replace("<=>", "="))
        return name

    patch.setattr(lowering, "restrict", equal)


@breaks("chain")
def demand_leaves_the_last_message_out(patch: pytest.MonkeyPatch) -> None:
    def fewer(
        branch: Branch, holders: Sequence[str], sizes: Mapping[str, float]
    ) -> list[KeyMessage]:
        return messages(branch, holders, sizes)[:-1]

    patch.setattr(demand, "messages", fewer)


@breaks("joined", "chain", "totals")
def demand_asks_one_side_only(patch: pytest.MonkeyPatch) -> None:
    def one_way(
        branch: Branch, holders: Sequence[str], sizes: Mapping[str, float]
    ) -> list[KeyMessage]:
        return messages(branch, list(holders)[:1], sizes)

    patch.setattr(demand, "messages", one_way)


@breaks("crossed")
def demand_counts_rows_found_twice_twice(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(found: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(found)

    patch.setattr(demand, "_once", all_of_them)


@breaks("chain")
def demand_forgets_rows_it_has_asked_for(patch: pytest.MonkeyPatch) -> None:
    def new_ones_alone(
        holistic: InputRows, column: str, keys: pa.Table
    ) -> tuple[list[pa.Table], pa.Table]:
        known, new = honest(holistic, column, keys)
        return [rows[:0] for rows in known], new

    honest = InputRows.split_known
    patch.setattr(InputRows, "split_known", new_ones_alone)


@breaks("extremes")
def demand_reads_half_of_a_group(patch: pytest.MonkeyPatch) -> None:
    def half(
        branch: Branch, first: dict[str, pa.Table], access: AccessPaths, *, before: int
    ) -> dict[str, InputRows]:
        # Images stay whole; of the rows of a group that is recomputed, half are lost.
        rows = {
            name: table if before else table[: table.num_rows // 2] for name, table in first.items()
        }
        return read_demanded(branch, rows, access, before=before)

    patch.setattr(evaluate, "read_demanded", half)


# -- the tests -------------------------------------------------------------------------------

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


def test_every_rule_is_sabotaged() -> None:
    rules = {
        "read",
        "filter",
        "project",
        "pairs",
        "inner",
        "union",
        "net",
        "aggregate",
        "restrict",
        "demand",
    }
    assert rules == {name.split("_")[0] for name in SABOTAGES}
