"""Demand on random join trees: which messages are sent, in which order, and that what they find is enough."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Scan
from millstream.algebra.table import Table
from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import wire_of
from millstream.plan.block import Branch, Edge, Input, Leaf, Read
from millstream.plan.demand import Message, messages, seed_of_groups
from millstream.plan.tree import spanning_tree

INT = PgType(23, "integer", "int4")
LEAVES = ("c0", "c1")


def make_input(name: str) -> Input:
    table = Table(1, "public", name, tuple(Column(leaf, INT) for leaf in LEAVES))
    leaves = tuple(Leaf(leaf, Expr.ref(name, leaf), INT, "carry", wire_of(INT)) for leaf in LEAVES)
    return Input(name, Scan(table, name), leaves, ())


def make_branch(edges: list[Edge], number: int) -> Branch:
    inputs = tuple(make_input(f"i{place}") for place in range(number))
    return Branch(inputs, tuple(edges), Read(inputs[0]), ())


@st.composite
def branches(draw: st.DrawFn, most: int = 6, keyless: bool = True) -> Branch:
    """A tree: each input but the first is tied to one before it, by one pair of columns, two, or none."""
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
def test_there_are_at_most_two_messages_per_edge_and_each_is_sent_once(demand: tuple[Branch, set[str]]) -> None:
    branch, holders = demand
    sent = [(one.sender, one.receiver) for one in messages(branch, holders)]
    assert len(sent) == len(set(sent)) <= 2 * (len(branch.inputs) - 1)


@given(demands())
def test_a_message_is_sent_exactly_where_something_stands_behind_it(demand: tuple[Branch, set[str]]) -> None:
    branch, holders = demand
    sent = {(one.sender, one.receiver) for one in messages(branch, holders)}
    for edge in branch.edges:
        for sender, receiver in ((edge.left, edge.right), (edge.right, edge.left)):
            assert ((sender, receiver) in sent) == bool(behind(branch, sender, receiver) & holders)


@given(demands())
def test_messages_pass_on_what_came_before_and_never_send_it_back(demand: tuple[Branch, set[str]]) -> None:
    branch, holders = demand
    sent = messages(branch, holders)
    order = {(one.sender, one.receiver): place for place, one in enumerate(sent)}
    for place, message in enumerate(sent):
        for former in message.after:
            assert order[former] < place
            assert former[1] == message.sender
            assert former[0] != message.receiver


@given(demands())
def test_a_message_asks_by_the_columns_of_its_edge(demand: tuple[Branch, set[str]]) -> None:
    branch, holders = demand
    for message in messages(branch, holders):
        edge = next(one for one in branch.edges if {one.left, one.right} == {message.sender, message.receiver})
        pairs = zip(message.sender_columns, message.receiver_columns, strict=True)
        assert list(edge.pairs) == [pair if message.sender == edge.left else pair[::-1] for pair in pairs]


# -- what is found is enough -----------------------------------------------------------------

Row = tuple[int | None, ...]


@dataclass
class Model:
    """The rows of each input before and after; a plain model of reading and joining."""

    branch: Branch
    before: dict[str, Counter[Row]]
    after: dict[str, Counter[Row]]

    def images(self, name: str) -> list[tuple[Row, int, int]]:
        """The slice: what was inserted corrects `before` by -1, what was deleted by +1."""
        came, went = self.after[name] - self.before[name], self.before[name] - self.after[name]
        return [(row, -1, 0) for row in came.elements()] + [(row, 1, 0) for row in went.elements()]

    def gathered(self) -> dict[str, list[tuple[Row, int, int]]]:
        """Images, and the stored rows that messages find, each once."""
        images = {one.name: self.images(one.name) for one in self.branch.inputs}
        answers, found = dict[tuple[str, str], set[int]](), {one.name: set[int]() for one in self.branch.inputs}
        stored = {name: list(rows.elements()) for name, rows in self.after.items()}
        for message in messages(self.branch, [name for name, rows in images.items() if rows]):
            senders = [row for row, _, _ in images[message.sender]]
            senders += [stored[message.sender][n] for pair in message.after for n in answers[pair]]
            keys = {_values(row, message.sender_columns) for row in senders}
            answer = {n for n, row in enumerate(stored[message.receiver]) if self._meets(row, message, keys)}
            answers[message.sender, message.receiver] = answer
            found[message.receiver] |= answer
        return {name: images[name] + [(stored[name][n], 1, 1) for n in found[name]] for name in found}

    def _meets(self, row: Row, message: Message, keys: set[Row]) -> bool:
        values = _values(row, message.receiver_columns)
        return bool(keys) and None not in values and values in keys

    def joined(self, rows: dict[str, list[tuple[Row, int, int]]]) -> Counter[tuple[Row, ...]]:
        """Net multiplicity of every combination."""
        net = Counter[tuple[Row, ...]]()
        names = [one.name for one in self.branch.inputs]
        for parts in product(*(rows[name] for name in names)):
            by_name = dict(zip(names, (part[0] for part in parts), strict=True))
            if all(self._tied(edge, by_name) for edge in self.branch.edges):
                before = after = 1
                for _, b, a in parts:
                    before, after = before * b, after * a
                net[tuple(part[0] for part in parts)] += after - before
        return Counter({row: n for row, n in net.items() if n})

    def _tied(self, edge: Edge, by_name: dict[str, Row]) -> bool:
        pairs = [(_value(by_name[edge.left], a), _value(by_name[edge.right], b)) for a, b in edge.pairs]
        return all(one is not None and one == other for one, other in pairs)

    def everything(self) -> dict[str, list[tuple[Row, int, int]]]:
        rows = {}
        for name in self.before:
            values = set(self.before[name]) | set(self.after[name])
            rows[name] = [(row, self.before[name][row], self.after[name][row]) for row in values]
        return rows


def _value(row: Row, leaf: str) -> int | None:
    return row[LEAVES.index(leaf)]


def _values(row: Row, leaves: tuple[str, ...]) -> Row:
    return tuple(_value(row, leaf) for leaf in leaves)


rows_strategy = st.lists(st.tuples(*[st.sampled_from([None, 0, 1, 2])] * 2), max_size=4).map(Counter)


@st.composite
def models(draw: st.DrawFn) -> Model:
    branch = draw(branches(most=4))
    names = [one.name for one in branch.inputs]
    before = {name: draw(rows_strategy) for name in names}
    changed = draw(st.sets(st.sampled_from(names)))
    after = {name: draw(rows_strategy) if name in changed else Counter(before[name]) for name in names}
    return Model(branch, before, after)


@settings(max_examples=300, deadline=None)
@given(models())
def test_changed_rows_and_what_they_can_meet_are_enough(model: Model) -> None:
    assert model.joined(model.gathered()) == model.joined(model.everything())


# -- the tree itself -------------------------------------------------------------------------


@st.composite
def equalities(draw: st.DrawFn) -> tuple[list[str], list[tuple[tuple[str, str], tuple[str, str]]]]:
    names = [f"i{place}" for place in range(draw(st.integers(1, 6)))]
    if len(names) < 2:
        return names, []
    ends = st.tuples(st.sampled_from(names), st.sampled_from(LEAVES))
    return names, draw(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0][0] != pair[1][0]), max_size=8))


@given(equalities())
def test_a_spanning_tree_ties_every_input_once_in_join_order(
    drawn: tuple[list[str], list[tuple[tuple[str, str], tuple[str, str]]]],
) -> None:
    names, pairs = drawn
    edges = spanning_tree(names, pairs)
    joined = {names[0]}
    for edge in edges:
        assert edge.left in joined
        assert edge.right not in joined
        joined.add(edge.right)
        for one, other in edge.pairs:
            tie = ((edge.left, one), (edge.right, other))
            assert tie in pairs or tie[::-1] in pairs
    assert joined == set(names)


@given(equalities())
def test_an_edge_without_columns_stands_only_where_no_equality_leads_on(
    drawn: tuple[list[str], list[tuple[tuple[str, str], tuple[str, str]]]],
) -> None:
    names, pairs = drawn
    parts = {name: {name} for name in names}
    for (one, _), (other, _) in pairs:
        merged = parts[one] | parts[other]
        parts |= dict.fromkeys(merged, merged)
    components = {frozenset(part) for part in parts.values()}
    assert sum(not edge.pairs for edge in spanning_tree(names, pairs)) == len(components) - 1


def test_groups_are_found_through_the_input_that_has_most_of_their_keys() -> None:
    branch = make_branch([Edge("i0", "i1", (("c0", "c0"),))], 2)
    sources = (("k0", None), ("k1", Ref("i0", "c0")), ("k2", Ref("i1", "c0")), ("k3", Ref("i1", "c1")))
    keyed = Branch(branch.inputs, branch.edges, branch.body, sources)
    assert seed_of_groups(keyed, ["k0", "k1", "k2", "k3"]) == ("i1", (("k2", "c0"), ("k3", "c1")))
    assert seed_of_groups(keyed, ["k0", "k1"]) == ("i0", (("k1", "c0"),))
    assert seed_of_groups(keyed, ["k0"]) is None
