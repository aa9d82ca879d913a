"""Plans are text, and that text is compared: each file of golden/ holds a query and what becomes of
it.

    SELECT ...                     the query
    ----
    Relation, Blocks, Demand, Spark SQL, and how a group is recomputed; or the refusal

To add a case, write a file with a query in it. To write what follows anew, and then read the
difference:

    MILLSTREAM_TEST_REWRITE=1 python -m pytest tests/compiler/test_golden.py

A name that ends in `_stays_out` is a case the rule of that name must leave alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from psycopg import sql
from sqlglot import exp

from millstream.algebra import expr
from millstream.algebra.block import Block, GroupedBlock, PairsBlock
from millstream.algebra.dialect import parsed
from millstream.compiler.blocks.demand import messages
from millstream.compiler.lowering import LoweringOptions, lower, printed
from millstream.compiler.server.plan_query import plan_query
from millstream.errors import MillstreamError
from millstream.postgres.composed import Printed, aliased
from millstream.postgres.connection import Connection
from millstream.refresh.reads.pairs import joined_sql
from millstream.store.names import from_item

GOLDEN = Path(__file__).parent / "golden"
LINE = "\n----\n"
FILES = sorted(path.stem for path in GOLDEN.glob("*.txt"))


def plan(conn: Connection, query: str) -> str:
    try:
        planned = plan_query(conn, query)
    except MillstreamError as error:
        return f"Refused\n{_indented(str(error))}\n"
    parts = {"Relation": str(planned.relation), "Blocks": "\n".join(map(str, planned.blocks))}
    for block in planned.blocks:
        of = f", {block.name}" if len(planned.blocks) > 1 else ""
        if isinstance(block, PairsBlock):
            parts[f"PostgreSQL{of}"] = pairs_of_changes(block)
            continue
        views = {one.name: one.name for one in block.inputs()}
        parts |= {f"Demand{of}": _demand(block), f"Spark SQL{of}": printed(block, views)}
        if isinstance(block, GroupedBlock) and block.head.consolidated and block.head.keys:
            parts[f"Spark SQL, of groups that are recomputed{of}"] = lower(
                block, views, LoweringOptions(wanted="groups")
            )
    return "\n\n".join(f"{title}\n{_indented(text)}" for title, text in parts.items()) + "\n"


def pairs_of_changes(block: PairsBlock) -> str:
    """Return the query for the pairs of changed rows of the first input."""
    one, other = (each.scan for each in block.inputs())
    items = [aliased(sql.SQL("changes"), one.alias), from_item(other, Printed(other.table.title))]
    return joined_sql(block, items, sql.SQL("-1"), []).as_string()


def _demand(block: Block) -> str:
    lines = []
    for branch in block.branches:
        for one in branch.inputs:
            sent = (
                "; ".join(str(message) for message in messages(branch, [one.name]))
                or "nothing else"
            )
            lines.append(f"{one.name} changed: {sent}")
    return "\n".join(lines)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


@pytest.mark.parametrize("name", FILES)
def test_plan(name: str, shop: Connection) -> None:
    path = GOLDEN / f"{name}.txt"
    query = path.read_text().split(LINE)[0].strip()
    found = f"{query}{LINE}{plan(shop, query)}"
    if os.environ.get("MILLSTREAM_TEST_REWRITE"):
        path.write_text(found)
    assert path.read_text() == found


def test_every_rule_has_a_case_where_it_stays_out() -> None:
    rules = {
        "read",
        "filter",
        "project",
        "inner_join",
        "left_join",
        "full_join",
        "mark_join",
        "union_all",
        "consolidate",
        "aggregate",
        "restrict",
        "demand",
        "key",
        "restricted_groups",
        "row_comparison",
    }
    assert rules <= {
        name.removesuffix("_stays_out") for name in FILES if name.endswith("_stays_out")
    }


def test_the_text_that_is_recorded_has_the_same_plan(shop: Connection) -> None:
    """A process that starts again plans that text, and must not take what the blocks keep for
    another plan's.
    """
    planned = 0
    for name in FILES[::3]:
        try:
            first = plan_query(shop, (GOLDEN / f"{name}.txt").read_text().split(LINE)[0].strip())
        except MillstreamError:
            continue
        again = plan_query(shop, first.canonical.text, qualified=True, keys=first.row_key().sources)
        assert list(map(str, again.blocks)) == list(map(str, first.blocks)), name
        assert again.digests == first.digests, name
        planned += 1
    assert planned > 20


def test_planning_leaves_the_trees_that_all_share_as_they_were(
    shop: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    expr._tree.cache_clear()
    handed_out = dict[str, exp.Expression]()

    def shared(text: str) -> exp.Expression:
        return handed_out.get(text) or handed_out.setdefault(text, parse(text))

    parse = expr._tree
    monkeypatch.setattr(expr, "_tree", shared)
    for name in FILES:
        plan(shop, (GOLDEN / f"{name}.txt").read_text().split(LINE)[0].strip())
    assert len(handed_out) > 500
    for text, tree in handed_out.items():
        assert tree.parent is None, text
        assert repr(tree) == repr(parsed(f"SELECT {text}").expressions[0].pop()), text
