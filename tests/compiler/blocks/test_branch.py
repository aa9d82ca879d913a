"""A branch: which conditions filter reads, which join, and along which edges demand travels."""

from __future__ import annotations

from tests.compiler.conftest import planned

from millstream.algebra.block import Branch


def branch(text: str, columns: str = "id") -> Branch:
    """The branch of a query that is one block."""
    [block] = planned(text, columns)
    [made] = block.branches
    return made


def filters(made: Branch) -> dict[str, list[str]]:
    """The filters of each input, by the alias of its table."""
    return {one.scan.alias: [condition.sql for condition in one.filters] for one in made.inputs}


def edges(made: Branch) -> list[tuple[tuple[str, str], ...]]:
    return [edge.pairs for edge in made.edges]


def test_a_condition_over_one_table_filters_its_reads() -> None:
    made = branch("SELECT t.id FROM public.t JOIN public.u ON u.a = t.a WHERE t.b > 1 AND u.b = 2")
    assert filters(made) == {"t": ['"t"."b" > 1'], "u": ['"u"."b" = 2']}


def test_a_condition_on_the_null_extended_side_is_no_filter_of_its_reads() -> None:
    made = branch("SELECT t.id FROM public.t LEFT JOIN public.u ON u.a = t.a WHERE u.b > 3")
    assert filters(made)["u"] == []


def test_an_or_filters_a_table_that_each_alternative_has_a_condition_on() -> None:
    made = branch(
        "SELECT t.id FROM public.t JOIN public.u ON u.a = t.a WHERE (t.b = 1 AND u.b = 2) OR t.b = 3"
    )
    assert len(filters(made)["t"]) == 1
    assert filters(made)["u"] == []


def test_equalities_between_the_same_tables_are_one_edge() -> None:
    """One column tied to two was looked up under one name."""
    made = branch("SELECT t.id FROM public.t JOIN public.u ON u.a = t.a AND u.b = t.a")
    [pairs] = edges(made)
    assert len(pairs) == 2


def test_without_an_equality_everything_is_read() -> None:
    made = branch("SELECT t.id FROM public.t JOIN public.u ON u.a > t.a")
    assert edges(made) == [()]


def test_tables_are_joined_in_the_order_in_which_equalities_lead_to_them() -> None:
    made = branch("SELECT t.id FROM public.t, public.u, public.w WHERE w.a = t.a AND u.b = w.b")
    aliases = {one.name: one.scan.alias for one in made.inputs}
    joined = [(aliases[edge.left], aliases[edge.right]) for edge in made.edges]
    assert joined == [("t", "w"), ("w", "u")]


def test_the_mark_of_exists_is_no_leaf() -> None:
    """Rows of groups were looked up by it, in an input that there is none of: internal errors."""
    made = branch(
        "SELECT t.id, EXISTS (SELECT 1 FROM public.u WHERE u.a = t.a) AS met FROM public.t",
        "id met",
    )
    assert [ref is None for _, ref in made.sources] == [False, True]
