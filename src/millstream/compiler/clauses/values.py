"""Constant rows: VALUES, and the one row of a query without FROM."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.table import ConstantRows, Table
from millstream.algebra.types import Column, PgType
from millstream.errors import Unsupported

# The row of a query without FROM. It has no columns, but our tables have at least one.
ONE = ConstantRows(
    (Column("one", PgType(23, "integer", "int4"), not_null=True),), values="VALUES (1)", single=True
)


def not_constant(part: exp.Expr) -> Unsupported:
    """Return the refusal of VALUES that contain more than constants."""
    return Unsupported.construct(
        "VALUES with a column or a subquery in it",
        reason="Its rows are constants to Millstream.",
        way_round="Write it as SELECT ... UNION ALL SELECT ...",
        node=part,
    )


def values_as_selects(values: exp.Values) -> exp.Expression:
    """Return VALUES as a UNION ALL of SELECTs, whose expressions may refer to outer columns."""
    selects = list[exp.Expression]()
    for row in values.expressions:
        listed = row.expressions if isinstance(row, exp.Tuple) else [row]
        selects.append(
            exp.Select(
                expressions=[
                    exp.alias_(value.copy(), f"column{n}") for n, value in enumerate(listed, 1)
                ]
            )
        )
    whole = selects[0]
    for select in selects[1:]:
        whole = exp.Union(this=whole, expression=select, distinct=False)
    return whole


def values_table(values: exp.Values, types: Callable[[str], tuple[PgType, ...]]) -> Table:
    """Return the constant table of VALUES; raise Unsupported if it contains a column or a subquery."""
    if part := values.find(exp.Column, exp.Select):
        raise not_constant(part)
    bare = values.copy()
    bare.set("alias", None)
    text = printed(bare)
    columns = tuple(Column(f"column{number}", type_) for number, type_ in enumerate(types(text), 1))
    return ConstantRows(columns, values=text, single=len(values.expressions) == 1)
