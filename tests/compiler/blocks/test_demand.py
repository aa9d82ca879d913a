"""Demand on random join trees: which messages are sent, in which order, and that what they find is
enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.algebra.block import Branch, Edge, Input, Leaf, Read
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import JoinKind, Scan
from millstream.algebra.table import SourceTable
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import wire_of
from millstream.compiler.blocks.demand import group_seed, messages
from millstream.refresh.reads import semijoin
from millstream.refresh.reads.demand import read_demanded, rows_of
from millstream.refresh.reads.read_sql import ROW, schema_of
from millstream.spark.engine import Engine, Rows


@pytest.fixture(autouse=True, scope="module")
def few_rows_are_compared_too() -> Iterator[None]:
    """Semi-join reduction is applied, however few rows there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(semijoin, "FEW", 0)
        yield


INT = PgType(23, "integer", "int4")
LEAVES = ("c0", "c1")


def make_input(name: str) -> Input:
    table = SourceTable(
        tuple(Column(leaf, INT) for leaf in LEAVES), oid=1, schema="public", name=name
    )
    leaves = tuple(Leaf(leaf, Expr.ref(name, leaf), INT, "carry", wire_of(INT)) for leaf in LEAVES)
    return Input(name, Scan(table, name), leaves, ())


def make_branch(edges: list[Edge], number: int) -> Branch:
    inputs = tuple(make_input(f"i{place}") for place in range(number))
    return Branch(inputs, tuple(edges), Read(inputs[0]), ())


@st.composite
def branches(draw: st.DrawFn, most: int = 6, keyless: bool = True) -> Branch:
    """A tree: each input but the first is tied to one before it, by one pair of columns, two, or
    none.
    """
    number = draw(st.integers(1, most))
    edges = []
    for place in range(1, number):
        left = draw(st.integers(0, place - 1))
        pair = st.tuples(st.sampled_from(LEAVES), st.sampled_from(LEAVES))
        pairs = draw(st.lists(pair, min_size=0 if keyless else 1, max_size=2, unique=True))
        edges.append(Edge(f"i{left}", f"i{place}", tuple(pairs)))
    return make_branch(edges, number)


@st.composite
def demands(draw: st.DrawFn) -> tuple[Branch, set[str]]:
    branch = draw(branches())
    return branch, set(draw(st.sets(st.sampled_from([one.name for one in branch.inputs]))))


def behind(branch: Branch, sender: str, receiver: str) -> set[str]:
    """The inputs on the sender's side of the edge."""
    found, waiting = {sender}, [sender]
    while waiting:
        name = waiting.pop()
        for edge in branch.edges:
            ends = edge.ends(name)
            if ends and ends[0] not in found and {name, ends[0]} != {sender, receiver}:
                found.add(ends[0])
                waiting.append(ends[0])
    return found


@given(demands())
def test_there_are_at_most_two_messages_per_edge_and_each_is_sent_once(
    demand: tuple[Branch, set[str]],
) -> None:
    branch, holders = demand
    sent = [(one.sender, one.receiver) for one in messages(branch, holders)]
    assert len(sent) == len(set(sent)) <= 2 * (len(branch.inputs) - 1)


@given(demands())
def test_a_message_is_sent_exactly_if_an_input_behind_it_holds_rows(
    demand: tuple[Branch, set[str]],
) -> None:
    branch, holders = demand
    sent = {(one.sender, one.receiver) for one in messages(branch, holders)}
    for edge in branch.edges:
        for sender, receiver in ((edge.left, edge.right), (edge.right, edge.left)):
            assert ((sender, receiver) in sent) == bool(behind(branch, sender, receiver) & holders)


@given(demands())
def test_messages_pass_on_what_came_before_and_never_send_it_back(
    demand: tuple[Branch, set[str]],
) -> None:
    branch, holders = demand
    sent = messages(branch, holders)
    order = {one.id: place for place, one in enumerate(sent)}
    for place, message in enumerate(sent):
        for former in message.after:
            assert order[former] < place
            assert former[1] == message.sender
            assert former[0] != message.receiver


@given(demands())
def test_a_message_looks_up_by_the_columns_of_its_edge(demand: tuple[Branch, set[str]]) -> None:
    branch, holders = demand
    for message in messages(branch, holders):
        edge = next(
            one
            for one in branch.edges
            if {one.left, one.right} == {message.sender, message.receiver}
        )
        pairs = zip(message.sender_columns, message.receiver_columns, strict=True)
        assert list(edge.pairs) == [
            pair if message.sender == edge.left else pair[::-1] for pair in pairs
        ]


def test_keys_are_looked_up_in_small_tables_before_large_ones() -> None:
    """Items ask suppliers, and those nations, of which a filter passes few, before they ask the
    orders, of many.
    """
    pair = (("c0", "c0"),)
    branch = make_branch(
        [Edge("i0", "i1", pair), Edge("i0", "i2", pair), Edge("i2", "i3", pair)], 4
    )
    inputs = [
        replace(one, filters=(Expr.parse("true"),)) if one.name in ("i1", "i3") else one
        for one in branch.inputs
    ]
    branch = replace(branch, inputs=tuple(inputs))
    sizes = {"i0": 6e6, "i1": 1.5e6, "i2": 1e4, "i3": 25.0}
    ways = [
        [(one.sender, one.receiver) for one in messages(branch, ["i0"], given)]
        for given in (sizes, {})
    ]
    assert ways == [
        [("i0", "i2"), ("i2", "i3"), ("i0", "i1")],
        [("i0", "i1"), ("i0", "i2"), ("i2", "i3")],
    ]


# -- what is found is enough -----------------------------------------------------------------

Row = tuple[int | None, ...]
Versioned = list[tuple[dict[str, Row | None], int, int]]


# By name of an input: the bounds that a moving filter compares the row with, before and after.
Bounds = dict[str, tuple[int | None, int | None]]


def passes(row: Row, bound: int | None) -> bool:
    """A moving filter, c1 >= bound; compared with NULL no row passes."""
    return bound is not None and row[1] is not None and row[1] >= bound


def counts(bounds: Bounds, name: str, row: Row) -> tuple[int, int]:
    """Does a row of an input pass, before and after?"""
    if name not in bounds:
        return 1, 1
    old, new = bounds[name]
    return int(passes(row, old)), int(passes(row, new))


class Memory:
    """Stands for the database: looks rows up in lists."""

    def __init__(self, stored: dict[str, list[Row]], bounds: Bounds) -> None:
        self.stored = stored
        self.bounds = bounds

    def crossing(self, name: str) -> pa.Table:
        was_and_is = [counts(self.bounds, name, row) for row in self.stored[name]]
        return self._table(
            make_input(name), [n for n, (was, now) in enumerate(was_and_is) if was != now], 1
        )

    def sizes(self, inputs: Iterable[Input]) -> dict[str, float]:
        return {one.name: float(len(self.stored[one.name])) for one in inputs}

    def lookup(
        self,
        one: Input,
        columns: tuple[str, ...],
        keys: pa.Table,
        *,
        before: int,
        nulls: tuple[int, ...],
    ) -> pa.Table:
        wanted = set(zip(*(column.to_pylist() for column in keys.columns), strict=True))
        wanted = {
            key
            for key in wanted
            if all(v is not None or place in nulls for place, v in enumerate(key))
        }
        found = [
            n for n, row in enumerate(self.stored[one.name]) if _values(row, columns) in wanted
        ]
        return self._table(one, found, before)

    def everything(self, one: Input, *, before: int, why: str = "") -> pa.Table:
        return self._table(one, range(len(self.stored[one.name])), before).drop_columns([ROW])

    def _table(self, one: Input, numbers: Iterable[int], before: int) -> pa.Table:
        picked = [
            (n, row, *counts(self.bounds, one.name, row))
            for n in numbers
            for row in [self.stored[one.name][n]]
        ]
        rows = [
            dict(zip(LEAVES, row, strict=True), __before=before * was, __after=now, __row=str(n))
            for n, row, was, now in picked
            if was or now
        ]
        return pa.Table.from_pylist(rows, schema=schema_of(one, located=True))


@dataclass
class Model:
    """The rows of each input before and after; a plain model of joining, each edge in turn."""

    branch: Branch
    before: dict[str, Counter[Row]]
    after: dict[str, Counter[Row]]
    bounds: Bounds = field(default_factory=dict)
    reads_crossing: bool = True

    def images(self, one: Input) -> pa.Table:
        """The slice: what was inserted corrects `before` by -1, what was deleted by +1."""
        came, went = (
            self.after[one.name] - self.before[one.name],
            self.before[one.name] - self.after[one.name],
        )
        rows = [(row, -1) for row in came.elements()] + [(row, 1) for row in went.elements()]
        rows = [(row, sign) for row, sign in rows if counts(self.bounds, one.name, row)[0]]
        listed = [
            dict(zip(LEAVES, row, strict=True), __before=before, __after=0) for row, before in rows
        ]
        return pa.Table.from_pylist(listed, schema=schema_of(one))

    def demanded(self) -> dict[str, list[tuple[Row, int, int]]]:
        """What `read_demanded` reads: images, and the stored rows that messages find."""
        access = Memory(
            {name: list(rows.elements()) for name, rows in self.after.items()}, self.bounds
        )
        first = {one.name: self.images(one) for one in self.branch.inputs}
        crossing = (
            {name: access.crossing(name) for name in self.bounds} if self.reads_crossing else {}
        )
        held = read_demanded(self.branch, first, access, before=1, crossing=crossing)  # type: ignore[arg-type]  # a stand-in
        return {
            one.name: _rows(rows_of(one, held[one.name], no_spark)) for one in self.branch.inputs
        }

    def joined(self, rows: dict[str, list[tuple[Row, int, int]]]) -> Counter[str]:
        """Net multiplicity of every row of the result."""
        names = [one.name for one in self.branch.inputs]
        result: Versioned = [({names[0]: row}, b, a) for row, b, a in rows[names[0]]]
        for edge in self.branch.edges:
            result = self._with(edge, result, rows[edge.right])
        net = Counter[str]()
        for by_name, before, after in result:
            net[str(sorted(by_name.items()))] += after - before
        return Counter({row: n for row, n in net.items() if n})

    def _with(self, edge: Edge, left: Versioned, right: list[tuple[Row, int, int]]) -> Versioned:
        new: Versioned = []
        for by_name, b, a in left:
            met = [(row, rb, ra) for row, rb, ra in right if _joins(edge, by_name[edge.left], row)]
            was, now = sum(rb for _, rb, _ in met) > 0, sum(ra for _, _, ra in met) > 0
            if edge.needed:
                new.append(({**by_name, edge.right: (1,)}, b * was, a * now))
                continue
            if edge.kind == "mark":
                new += [
                    ({**by_name, edge.right: (int(was),)}, b, 0),
                    ({**by_name, edge.right: (int(now),)}, 0, a),
                ]
                continue
            new += [({**by_name, edge.right: row}, b * rb, a * ra) for row, rb, ra in met]
            if edge.kind in ("left", "full"):
                new.append(({**by_name, edge.right: None}, b * (not was), a * (not now)))
        if edge.kind == "full":
            names = [one.name for one in self.branch.inputs]
            nothing = dict.fromkeys(names[: names.index(edge.right)])
            for row, rb, ra in right:
                met_by = [(b, a) for by_name, b, a in left if _joins(edge, by_name[edge.left], row)]
                was, now = sum(b for b, _ in met_by) > 0, sum(a for _, a in met_by) > 0
                new.append(({**nothing, edge.right: row}, rb * (not was), ra * (not now)))
        return new

    def everything(self) -> dict[str, list[tuple[Row, int, int]]]:
        rows = {}
        for name in self.before:
            values = set(self.before[name]) | set(self.after[name])
            passing = [(row, *counts(self.bounds, name, row)) for row in values]
            rows[name] = [
                (row, was * self.before[name][row], now * self.after[name][row])
                for row, was, now in passing
            ]
        return rows


def no_spark() -> Engine:
    """All rows of these tables are at hand."""
    raise AssertionError


def _rows(table: Rows) -> list[tuple[Row, int, int]]:
    assert isinstance(table, pa.Table)
    return [
        (tuple(row[leaf] for leaf in LEAVES), row["__before"], row["__after"])
        for row in table.to_pylist()
    ]


def _joins(edge: Edge, left: Row | None, right: Row) -> bool:
    if left is None:
        return not edge.pairs
    pairs = [(_value(left, a), _value(right, b)) for a, b in edge.pairs]
    return all(
        one == other and (one is not None or place in edge.nulls)
        for place, (one, other) in enumerate(pairs)
    )


def _value(row: Row, leaf: str) -> int | None:
    return row[LEAVES.index(leaf)]


def _values(row: Row, leaves: tuple[str, ...]) -> Row:
    return tuple(_value(row, leaf) for leaf in leaves)


@st.composite
def join_trees(draw: st.DrawFn) -> Branch:
    """Joins of all kinds, one after the other; an edge without columns has an input that is never
    null-extended.
    """
    number = draw(st.integers(1, 4))
    edges, visible, cover, certain = list[Edge](), ["i0"], ["i0"], ["i0"]
    for place in range(1, number):
        pair = st.tuples(st.sampled_from(LEAVES), st.sampled_from(LEAVES))
        pairs = draw(st.lists(pair, max_size=2, unique=True))
        kind: JoinKind = draw(st.sampled_from(get_args(JoinKind)))
        left = draw(st.sampled_from(visible)) if pairs else cover[-1]
        # By an equality of NULLs only where there is a row for sure: what was padded has no key to
        # look up.
        nulls = (
            draw(st.sets(st.sampled_from(range(len(pairs)))))
            if pairs and left in certain
            else set[int]()
        )
        needed = kind == "mark" and draw(st.booleans())
        edges.append(Edge(left, f"i{place}", tuple(pairs), kind, tuple(sorted(nulls)), needed))
        certain = [] if kind == "full" else [*certain, f"i{place}"] if kind == "inner" else certain
        visible += [] if kind == "mark" else [f"i{place}"]
        cover += [f"i{place}"] if kind in ("inner", "full") else []
    return make_branch(edges, number)


rows_strategy = st.lists(st.tuples(*[st.sampled_from([None, 0, 1, 2])] * 2), max_size=4).map(
    Counter
)


@st.composite
def models(draw: st.DrawFn) -> Model:
    branch = draw(join_trees())
    names = [one.name for one in branch.inputs]
    before = {name: draw(rows_strategy) for name in names}
    changed = draw(st.sets(st.sampled_from(names)))
    after = {
        name: draw(rows_strategy) if name in changed else Counter(before[name]) for name in names
    }
    return Model(branch, before, after)


@settings(max_examples=500, deadline=None)
@given(models())
def test_changed_rows_and_those_that_they_can_join_are_enough_for_joins_of_all_kinds(
    model: Model,
) -> None:
    assert model.joined(model.demanded()) == model.joined(model.everything())


@st.composite
def models_with_filters(draw: st.DrawFn) -> Model:
    """The same where filters of some inputs move with the change."""
    model = draw(models())
    names = [one.name for one in model.branch.inputs]
    bound = st.sampled_from([None, 0, 1, 2, 3])
    return replace(
        model,
        bounds={name: (draw(bound), draw(bound)) for name in draw(st.sets(st.sampled_from(names)))},
    )


@settings(max_examples=700, deadline=None)
@given(models_with_filters())
def test_with_temporal_filters_the_crossing_rows_and_those_that_they_can_join_are_enough(
    model: Model,
) -> None:
    assert model.joined(model.demanded()) == model.joined(model.everything())


def test_without_the_crossing_rows_the_result_would_be_wrong() -> None:
    rows = Counter[Row]([(1, 1), (2, 2)])
    model = Model(make_branch([], 1), {"i0": rows}, {"i0": rows}, {"i0": (1, 2)})
    assert model.joined(model.demanded()) == model.joined(model.everything())
    assert model.joined(replace(model, reads_crossing=False).demanded()) != model.joined(
        model.everything()
    )


@pytest.mark.parametrize("kind", ["left", "full", "mark"])
def test_rows_that_may_be_null_extended_are_not_dropped(
    kind: JoinKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = Edge("i0", "i1", (("c0", "c0"),), kind)
    came = Counter[Row]([(1, 1)])
    model = Model(
        make_branch([edge], 2), {"i0": Counter(), "i1": Counter()}, {"i0": came, "i1": Counter()}
    )
    assert model.joined(model.demanded()) == model.joined(model.everything())
    monkeypatch.setattr(Edge, "reduces", lambda edge, sender: True)
    assert model.joined(model.demanded()) != model.joined(model.everything())


def test_rows_without_a_match_send_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new rows of i0 join no row of i1, which has a filter and is read first.

    So nothing is looked up in i2.
    """
    branch = make_branch([Edge("i0", "i2", (("c1", "c1"),)), Edge("i0", "i1", (("c0", "c0"),))], 3)
    inputs = tuple(
        replace(one, filters=(Expr("true"),)) if one.name == "i1" else one for one in branch.inputs
    )
    after = {
        "i0": Counter[Row]([(1, 1), (2, 1)]),
        "i1": Counter[Row]([(3, 3)]),
        "i2": Counter[Row]([(1, 1)]),
    }
    model = Model(replace(branch, inputs=inputs), {**after, "i0": Counter()}, after)
    assert model.demanded() == {"i0": [], "i1": [], "i2": []}
    monkeypatch.setattr(semijoin, "FEW", 1_000)
    assert [len(rows) for rows in model.demanded().values()] == [2, 0, 1]


def test_groups_are_found_through_the_input_that_has_most_of_their_keys() -> None:
    branch = make_branch([Edge("i0", "i1", (("c0", "c0"),))], 2)
    sources = (
        ("k0", None),
        ("k1", Ref("i0", "c0")),
        ("k2", Ref("i1", "c0")),
        ("k3", Ref("i1", "c1")),
    )
    keyed = Branch(branch.inputs, branch.edges, branch.body, sources)
    assert group_seed(keyed, ["k0", "k1", "k2", "k3"]) == ("i1", (("k2", "c0"), ("k3", "c1")))
    assert group_seed(keyed, ["k0", "k1"]) == ("i0", (("k1", "c0"),))
    assert group_seed(keyed, ["k0"]) is None
