"""A query in the making."""

from __future__ import annotations

import random

from tests.testing.queries.conftest import makers

from millstream.testing.queries import RandomQueries
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import RandomTerm
from millstream.testing.randomness import random_tables


def maker(*, cased: bool = True) -> Maker:
    return next(makers(cased=cased))


def test_a_seed_gives_the_same_queries() -> None:
    def first(seed: int) -> list[str]:
        dice = random.Random(seed)
        queries = RandomQueries(random_tables(dice, cased=True), dice)
        return [queries.next().sql for _ in range(20)]

    assert first(7) == first(7) != first(8)


def test_no_alias_is_given_twice() -> None:
    m = maker()
    assert len({m.table().alias for _ in range(5)}) == 5


def test_the_case_comes_first_where_there_are_cases() -> None:
    columns = {"j": RandomTerm("a.j", "int4")}
    assert maker().listed("a.cid", columns) == (
        "a.cid AS cid, a.j AS j",
        [("cid", "int4"), ("j", "int4")],
    )
    assert maker(cased=False).listed("a.cid", columns) == ("a.j AS j", [("j", "int4")])


def test_a_recursive_query_and_its_ctes_share_one_with() -> None:
    m = maker()
    name = m.cte("SELECT 1", [])
    assert m.whole("SELECT 2").startswith(f"WITH {name} AS ")
    whole = m.whole("WITH RECURSIVE r AS (SELECT 3) SELECT 4")
    assert whole.startswith(f"WITH RECURSIVE {name} AS ")
    assert whole.count("WITH ") == 1
    assert whole.endswith(", r AS (SELECT 3) SELECT 4")


def test_ctes_are_not_seen_from_a_text_apart_and_come_back() -> None:
    m = maker()
    m.cte("SELECT 1", [])
    with m.apart():
        assert m.whole("SELECT 2") == "SELECT 2"
    assert m.whole("SELECT 2") != "SELECT 2"


def test_something_made_sometimes_is_not_made_otherwise() -> None:
    def never() -> str:
        raise AssertionError("made by no chance")

    assert maker().sometimes(0, never) == ""
    assert maker().sometimes(1.1, lambda: "made") == "made"
