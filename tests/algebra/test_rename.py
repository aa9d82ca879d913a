"""Relations that differ in their aliases alone have one canonical form."""

from __future__ import annotations

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Expand,
    Expansion,
    Filter,
    Join,
    Limit,
    Measure,
    Named,
    Order,
    Project,
    Relation,
    Scan,
    UnionAll,
    Window,
)
from millstream.algebra.rename import canonical
from millstream.testing.planning_server import pg_type, table

TABLE = table("t", "a int4, b int4", key="a")


def every_kind(x: str, y: str) -> Relation:
    """One relation with a node of each kind, under aliases that begin with x and y."""
    joined = Join(Scan(TABLE, x), Scan(TABLE, y), Expr.parse(f'"{x}"."a" = "{y}"."a"'))
    met = Join(
        joined,
        Scan(TABLE, f"{x}2"),
        Expr.parse(f'"{y}"."b" = "{x}2"."b"'),
        "mark",
        Ref(f"{y}_m", "met"),
    )
    rows = Project(
        Filter(met, Expr.parse(f'"{y}_m"."met"')), (Named("v", Expr.ref(x, "a")),), f"{x}_p"
    )
    union = UnionAll((rows,), ("v",), (pg_type("int4"),), f"{y}_u")
    call = Expansion(f"{x}_f", ("n",), Expr.parse(f'generate_series(1, "{y}_u"."v")'))
    expanded = Expand(union, call, f"{y}_e")
    window = Window(
        expanded, (Expr.ref(f"{y}_e", "c0"),), (Named("w", Expr.ref(f"{y}_e", "f0")),), f"{x}_w"
    )
    limit = Limit(window, (Order(Expr.ref(f"{x}_w", "w"), "DESC"),), "LIMIT 3", f"{y}_l")
    key = Named("k", Expr.ref(f"{y}_l", "c0"))
    return Aggregate(
        limit, (key,), (Measure("m", Call("max", Expr.ref(f"{y}_l", "c1"))),), f"{x}_g"
    )


def test_aliases_do_not_matter() -> None:
    assert every_kind("o", "c") != every_kind("p", "q")
    assert canonical(every_kind("o", "c")) == canonical(every_kind("p", "q"))


def test_what_an_alias_stands_for_does_matter() -> None:
    condition = Expr.parse('"x"."a" = "y"."b"')
    turned = Expr.parse('"y"."a" = "x"."b"')
    assert canonical(Join(Scan(TABLE, "x"), Scan(TABLE, "y"), condition)) != canonical(
        Join(Scan(TABLE, "x"), Scan(TABLE, "y"), turned)
    )


def test_the_canonical_form_is_its_own() -> None:
    form = canonical(every_kind("o", "c"))
    assert canonical(form) == form
