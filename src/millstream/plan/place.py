"""Place each part of an expression: over one table in PostgreSQL, across tables in Spark.

The largest parts that touch one table become leaf columns, whatever they contain: PostgreSQL
computes them while reading. What is left, across tables, must be something that Spark computes
exactly as PostgreSQL does; `SAFE` is the list. All else is refused by name.

    o.qty * p.price > lower(c.limit)::int   ->   leaves o.qty, p.price, lower(c.limit)::int
                                                 Spark  i0_c0 * i1_c0 > i2_c0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, parenthesised, ref_of, transform, unwrapped
from millstream.algebra.relation import Scan
from millstream.algebra.types import PgType
from millstream.algebra.wire import Wire, wire_of
from millstream.errors import Unsupported
from millstream.plan.block import Input, Leaf, Use, wire_for
from millstream.plan.moving import Moving
from millstream.plan.region import Atoms, Outer, Region
from millstream.plan.scale import Digits, digits_of, digits_of_type
from millstream.plan.server import Constant, Server

BOOL = PgType(16, "boolean", "bool")
INT4 = PgType(23, "integer", "int4")
NUMERIC = PgType(1700, "numeric", "numeric")
_INTEGERS = {"int2": 5, "int4": 10, "int8": 19}


@dataclass(frozen=True)
class Placed:
    """An expression over leaf columns, for Spark, with what it is."""

    expr: Expr
    wire: Wire
    type: PgType | None
    """PostgreSQL's type; None for a result that only Spark has, such as a product."""


def _children(node: exp.Expression) -> list[exp.Expression]:
    """The expressions it is made of; of a CASE, its conditions and results."""
    found = list[exp.Expression]()
    for child in node.iter_expressions():
        if isinstance(node, exp.Case) and isinstance(child, exp.If):
            found += [child.this, child.args["true"]]
        elif not isinstance(child, exp.DataType | exp.Identifier | exp.Var):
            found.append(child)
    return found


class Placer:
    """Gathers the leaf columns of one branch."""

    def __init__(
        self, atoms: Atoms, first: int, expressions: Sequence[Expr], server: Server, *, sharpen: bool = True
    ) -> None:
        self.atoms = atoms
        self.scans = atoms.scans
        self.names = {alias: f"i{first + number}" for number, alias in enumerate(self.scans)}
        self.leaves: dict[str, dict[tuple[Expr, str], Leaf]] = {alias: {} for alias in self.scans}
        self.server = server
        self._around: tuple[Outer, ...] = ()
        parts = list(dict.fromkeys(part for one in expressions for part in self.parts(one)))
        types = server.types([atoms.expanded(part) for part in parts], list(self.scans.values())) if parts else ()
        self.types = dict(zip(parts, types, strict=True)) | {Expr(ref.sql): BOOL for ref in atoms.marks}
        if sharpen:
            self.types = {part: self._sharpened(part, type_) for part, type_ in self.types.items()}

    def parts(self, expression: Expr) -> Iterator[Expr]:
        """The largest parts that touch at most one table."""
        if self._is_mark(expression):
            return
        if self.single(expression):
            yield Expr.of(unwrapped(expression.node))
        elif isinstance(unwrapped(expression.node), exp.Subquery):
            for column in sorted(expression.refs):
                yield from self.parts(Expr(column.sql))
        elif (ref := expression.as_ref) is not None:
            yield from self.parts(self.atoms.sealed[ref][0])
        else:
            for child in _children(unwrapped(expression.node)):
                yield from self.parts(Expr.of(child))

    def single(self, expression: Expr) -> bool:
        """Is it over one table at most, and no mark? What may fail for a row that is not in the result is of all."""
        homes = self.atoms.homes(expression)
        return len(homes) <= 1 and homes <= self.scans.keys() and not (len(self.scans) > 1 and expression.late)

    def _is_mark(self, expression: Expr) -> bool:
        return expression.as_ref in self.atoms.marks

    @contextmanager
    def inside(self, outer: Outer) -> Iterator[None]:
        """Place what stands inside an outer join: there its rows are not padded yet."""
        self._around, before = (*self._around, outer), self._around
        try:
            yield
        finally:
            self._around = before

    def _sharpened(self, expression: Expr, type_: PgType) -> PgType:
        """A numeric whose digits follow from its columns gets them back."""
        if type_.base != "numeric" or type_.precision is not None:
            return type_
        digits = digits_of(self.atoms.expanded(expression), self._digits)
        if digits is None or digits.after > 30:
            return type_
        return replace(type_, precision=min(38, digits.before + digits.after), scale=digits.after)

    def _digits(self, ref: Ref) -> Digits | None:
        column = self.scans[ref.alias].table.column(ref.column) if ref.alias in self.scans else None
        return digits_of_type(column.type) if column else None

    def type_of(self, node: exp.Expression) -> PgType:
        """PostgreSQL's type of an expression over several tables."""
        expression = self.atoms.expanded(Expr.of(node))
        marks = {ref: Expr("(true)") for ref in self.atoms.marks}
        return self.server.types([expression.substitute(marks)], list(self.scans.values()))[0]

    def inputs(
        self, filters: Sequence[tuple[str, Expr]], moving: Mapping[str, tuple[Moving, ...]]
    ) -> tuple[Input, ...]:
        """The inputs with the leaves gathered so far and the filters of each, by alias."""
        return tuple(
            Input(
                self.names[alias], scan, tuple(self.leaves[alias].values()),
                tuple(f for a, f in filters if a == alias), moving.get(alias, ()),
            )
            for alias, scan in self.scans.items()
        )  # fmt: skip

    # -- one table -------------------------------------------------------------------------

    def leaf(self, expression: Expr, use: Use) -> Placed:
        """An expression over one table as a leaf column; a constant belongs to a table that is always there.

        Inside an outer or mark join that table may be out of sight: there a constant is written as it is.
        """
        scan = self._home(expression)
        type_ = self.types[expression]
        wire = wire_for(type_, use)
        if wire is None:
            raise refused_number(expression, type_)
        if scan is None:
            return Placed(_literal(self._values([wire.encode_sql(expression.sql)])[0], wire), wire, type_)
        # Where a key needs no canonical form it travels as it is, and shares the carried column.
        use = "carry" if use == "key" and wire.canonical == "{x}" else use
        leaf = self._own(scan, self.atoms.expanded(expression), type_, use, wire)
        ref = Expr.ref(self.names[scan.alias], leaf.name)
        return Placed(self._padded(expression, leaf, scan, ref), leaf.wire, type_)

    def _home(self, expression: Expr) -> Scan | None:
        aliases = self.atoms.homes(expression)
        if aliases:
            return self.scans[next(iter(aliases))]
        return None if self._around else self.atoms.first_certain()

    def _own(self, scan: Scan, expression: Expr, type_: PgType, use: Use, wire: Wire) -> Leaf:
        own = self.leaves[scan.alias]
        return own.setdefault((expression, use), Leaf(f"c{len(own)}", expression, type_, use, wire))

    def _padded(self, expression: Expr, leaf: Leaf, scan: Scan, ref: Expr) -> Expr:
        """What it is where an outer join left the table's columns NULL: mostly NULL, but not always."""
        values = self._without(expression, leaf, scan)
        # A NULL needs no telling, unless a join further in has something else to tell.
        while values and values[-1][1] is None:
            values.pop()
        whens = [f"WHEN {self._marker(side).sql} IS NULL THEN {_literal(v, leaf.wire).sql}" for side, v in values]
        return Expr.parse(f"CASE {' '.join(whens)} ELSE {ref.sql} END") if whens else ref

    def _without(self, expression: Expr, leaf: Leaf, scan: Scan) -> list[tuple[Region, Constant]]:
        """For each join that may pad it, outermost first: its value there."""
        padding, texts = self.atoms.padding(scan.alias, self._around), list[str]()
        if expression.as_ref is not None and all(expression.as_ref not in dict(o.sealed) for o, _ in padding):
            return []
        for outer, _ in padding:
            texts.append(replace(leaf, expr=self._nulled(expression)).sql)
            expression = self.atoms.unsealed(expression, outer)
        values = self._values(texts)
        return [(side, value) for (_, side), value in zip(padding, values, strict=True)]

    def _nulled(self, expression: Expr) -> Expr:
        refs = sorted(expression.refs)
        types = self.server.types([self.atoms.expanded(Expr(ref.sql)) for ref in refs], list(self.scans.values()))
        return expression.substitute(
            {ref: Expr(f"CAST(NULL AS {type_.name})") for ref, type_ in zip(refs, types, strict=True)}
        )

    def _values(self, expressions: Sequence[str]) -> tuple[Constant, ...]:
        return self.server.values(expressions) if expressions else ()

    def null_if_padded(self, expression: Expr) -> bool:
        """Is it NULL wherever an outer join left its table's columns NULL?"""
        scan = self._home(expression)
        if scan is None or not self.atoms.padding(scan.alias, self._around):
            return True
        type_ = self.types[expression]
        leaf = Leaf("c", expression, type_, "carry", wire_of(type_))
        return all(value is None for _, value in self._without(expression, leaf, scan))

    def never_padded(self, expression: Expr) -> bool:
        """Does its table have a row in each row here?"""
        scan = self._home(expression)
        return scan is not None and not self.atoms.padding(scan.alias, self._around)

    def _marker(self, region: Region) -> Expr:
        """True in each row of a region, NULL where it was padded."""
        certain = next(region.certain(), None)
        if certain is not None:
            leaf = self._own(certain, Expr("true"), BOOL, "carry", wire_of(BOOL))
            return Expr.ref(self.names[certain.alias], leaf.name)
        full = next(member for member in region.members if isinstance(member, Outer))
        return Expr.parse(f"COALESCE({self._marker(full.left).sql}, {self._marker(full.right).sql})")

    # -- digits after the point ------------------------------------------------------------

    def scale(self, expression: Expr, placed: Placed) -> Placed | None:
        """Beside a numeric whose digits are not known: how many it shows after the point, row by row."""
        digits = digits_of(self.atoms.expanded(expression), self._digits)
        if placed.wire.number != "decimal" or (digits is not None and digits.after == placed.wire.scale):
            return None
        if not self.single(expression):
            shown = f"CASE WHEN ({placed.expr.sql}) IS NOT NULL THEN {self._scale(expression.node)} END"
            return Placed(Expr.parse(shown), wire_of(INT4), INT4)
        return self._scale_leaf(expression) if self.types[expression].scale is None else None

    def _scale_leaf(self, expression: Expr) -> Placed:
        told = Expr.parse(f"scale({expression.sql})")
        self.types[told] = INT4
        return self.leaf(told, "carry")

    def _scale(self, node: exp.Expression) -> str:
        """The scale of an expression, by PostgreSQL's rules, for Spark; what it is of is not NULL."""
        node = unwrapped(node)
        expression = Expr.of(node)
        if self.single(expression):
            digits = digits_of_type(self.types[expression])
            return str(digits.after) if digits else self._scale_leaf(expression).expr.sql
        if (ref := expression.as_ref) is not None:
            return self._scale(self.atoms.sealed[ref][0].node)
        if isinstance(node, exp.Case):
            return self._scale_of_case(node)
        if isinstance(node, exp.Coalesce):
            ifs = [f"WHEN ({self.place(Expr.of(v), 'number').expr.sql}) IS NOT NULL THEN {self._scale(v)}"
                   for v in (node.this, *node.expressions)]  # fmt: skip
            return f"CASE {' '.join(ifs)} END"
        parts = [self._scale(child) for child in _children(node)]
        if isinstance(node, exp.Mul):
            return f"({' + '.join(parts)})"
        return f"greatest({', '.join(parts)})" if len(parts) > 1 else parts[0]

    def _scale_of_case(self, node: exp.Case) -> str:
        ifs = [
            f"WHEN {self.place(Expr.of(branch.this), 'carry').expr.sql} THEN {self._scale(branch.args['true'])}"
            for branch in node.args["ifs"]
        ]
        default = node.args.get("default")
        return f"CASE {' '.join(ifs)}{f' ELSE {self._scale(default)}' if default is not None else ''} END"

    # -- any expression --------------------------------------------------------------------

    def place(self, expression: Expr, use: Use) -> Placed:
        """An expression of any kind, for Spark."""
        node = unwrapped(expression.node)
        expression = Expr.of(node)
        if self._is_mark(expression):
            return Placed(expression, wire_of(BOOL), BOOL)
        if self.single(expression):
            return self.leaf(expression, use)
        if (ref := expression.as_ref) is not None:
            return self._sealed(ref, use)
        rule = SAFE.get(type(node))
        if rule is None:
            raise across(expression)
        return rule(self, node, use)

    def _sealed(self, ref: Ref, use: Use) -> Placed:
        """A column over several tables of an outer join's optional side: NULL where that side is padded."""
        definition, outer = self.atoms.sealed[ref]
        with self.inside(outer):
            placed = self.place(definition, use)
        homes = self.atoms.homes(definition)
        side = next(one for one in outer.padded() if homes & {scan.alias for scan in one.scans()})
        whole = f"CASE WHEN {self._marker(side).sql} IS NOT NULL THEN {placed.expr.sql} END"
        return Placed(Expr.parse(whole), placed.wire, placed.type)

    def over_columns(self, expression: Expr) -> tuple[Expr, dict[Ref, Placed]]:
        """An expression that PostgreSQL evaluates later, and what its columns are in Spark.

        Of a join only columns are read: what fails for some row (1 / x) must fail only if the row is in the result.
        """
        expression = Expr.of(unwrapped(expression.node))
        if len(self.scans) == 1 and expression.refs:
            whole = Ref("whole", expression.sql)
            return Expr(whole.sql), {whole: self.leaf(expression, "carry")}
        expression, told = self._told(expression)
        return expression, {ref: told.get(ref) or self._carried(ref) for ref in sorted(expression.refs)}

    def _told(self, expression: Expr) -> tuple[Expr, dict[Ref, Placed]]:
        """What is made of the time alone is read as it is: a day changes less often than the time."""
        parts = [part for part in self.parts(expression) if self._is_told(part)]
        wholes = {part: Ref("whole", part.sql) for part in parts}

        def replaced(node: exp.Expression) -> exp.Expression:
            found = wholes.get(Expr.of(node))
            return Expr(found.sql).node if found else node

        told = {whole: self.leaf(part, "carry") for part, whole in wholes.items()}
        return (Expr.of(transform(expression.node, replaced)), told) if told else (expression, {})

    def _is_told(self, part: Expr) -> bool:
        scan = self._home(part)
        return bool(part.refs) and part.as_ref is None and scan is not None and scan.table.is_clock

    def _carried(self, ref: Ref) -> Placed:
        expression = Expr(ref.sql)
        if ref in self.atoms.sealed and expression not in self.types:
            self.types |= {part: self.type_of(part.node) for part in self.parts(expression)}
        elif expression not in self.types and ref not in self.atoms.marks:
            column = self.scans[ref.alias].table.column(ref.column) if ref.alias in self.scans else None
            self.types[expression] = column.type if column else self.type_of(expression.node)
        return self.place(expression, "carry")


def _literal(value: Constant, wire: Wire) -> Expr:
    """A value that travelled, as a constant for Spark."""
    if value is None:
        return Expr.parse(f"CAST(NULL AS {_SPARK_TO_SQL.get(wire.spark, wire.spark)})")
    if isinstance(value, bool):
        return Expr("TRUE" if value else "FALSE")
    text = value.replace("'", "''") if isinstance(value, str) else repr(value)
    quoted = f"'{text}'" if isinstance(value, str | float) else text
    return Expr.parse(f"CAST({quoted} AS {_SPARK_TO_SQL.get(wire.spark, wire.spark)})")


# Spark's names of types in PostgreSQL's words, which is what an Expr is written in.
_SPARK_TO_SQL = {"string": "text", "double": "double precision", "float": "real"}


# -- what Spark computes exactly as PostgreSQL does ------------------------------------------

Rule = Callable[[Placer, exp.Expression, Use], Placed]


def _logical(placer: Placer, node: exp.Expression, use: Use) -> Placed:
    for child in _children(node):
        child.replace(exp.Paren(this=placer.place(Expr.of(child), "carry").expr.node))
    return Placed(Expr.of(node), wire_of(BOOL), BOOL)


def _comparison(placer: Placer, node: exp.Expression, use: Use) -> Placed:
    left, right = (Expr.of(unwrapped(child)) for child in (node.this, node.expression))
    wanted: Use = "number" if _numeric(placer, left) or _numeric(placer, right) else "key"
    one, other = placer.place(left, wanted), placer.place(right, wanted)
    ordering = isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE)
    if not _comparable(one, other) or (ordering and not (one.wire.ordered and other.wire.ordered)):
        raise across(Expr.of(node), "Its order or equality is not the same in Spark.")
    made = type(node)(this=parenthesised(one.expr.node), expression=parenthesised(other.expr.node))
    return Placed(Expr.of(made), wire_of(BOOL), BOOL)


def _numeric(placer: Placer, expression: Expr) -> bool:
    """Is any part of it a numeric? Then both sides are compared as numbers."""
    return any(placer.types[part].base == "numeric" for part in placer.parts(expression))


def _comparable(one: Placed, other: Placed) -> bool:
    if not (one.wire.equal and other.wire.equal):
        return False
    if one.wire.number and other.wire.number:
        return (one.wire.number == "float") == (other.wire.number == "float")
    return one.wire == other.wire and (one.type is None or other.type is None or one.type.base == other.type.base)


def _arithmetic(placer: Placer, node: exp.Expression, use: Use) -> Placed:
    one, other = placer.place(Expr.of(node.this), "number"), placer.place(Expr.of(node.expression), "number")
    made = type(node)(this=exp.Paren(this=one.expr.node), expression=exp.Paren(this=other.expr.node))
    if one.wire.number == "int" and other.wire.number == "int":
        wider = max(one, other, key=lambda placed: _INTEGERS[placed.type.base] if placed.type else 0)
        return Placed(Expr.of(made), wider.wire, wider.type)
    if "float" in (one.wire.number, other.wire.number):
        raise across(Expr.of(node), "Floating-point arithmetic overflows silently in Spark.")
    return Placed(Expr.of(made), _result(node, _digits(one), _digits(other)), None)


def _digits(placed: Placed) -> tuple[int, int]:
    """Digits before and after the point."""
    if placed.wire.number == "int":
        assert placed.type is not None
        return _INTEGERS[placed.type.base], 0
    precision = int(placed.wire.spark.removeprefix("decimal(").split(",")[0])
    return precision - placed.wire.scale, placed.wire.scale


def _result(node: exp.Expression, one: tuple[int, int], other: tuple[int, int]) -> Wire:
    if isinstance(node, exp.Mul):
        before, after = one[0] + other[0] + 1, one[1] + other[1]
    else:
        before, after = max(one[0], other[0]) + 1, max(one[1], other[1])
    if after > 30:
        raise across(Expr.of(node), "Its exact result has too many digits after the point.")
    precision = min(38, before + after)
    return Wire("string", f"decimal({precision},{after})", equal=True, ordered=True, number="decimal", scale=after)


def _negative(placer: Placer, node: exp.Expression, use: Use) -> Placed:
    inner = placer.place(Expr.of(node.this), "number")
    return Placed(Expr.of(exp.Neg(this=exp.Paren(this=inner.expr.node))), inner.wire, inner.type)


def _cast(placer: Placer, node: exp.Expression, use: Use) -> Placed:
    """An integer made a numeric: the only cast across tables that Spark repeats exactly (or to its own type)."""
    if placer.type_of(node.this) == placer.type_of(node):
        return placer.place(Expr.of(node.this), use)
    to = node.args["to"]
    inner = placer.place(Expr.of(node.this), "number")
    if not (isinstance(to, exp.DataType) and to.this == exp.DType.DECIMAL and not to.expressions):
        raise across(Expr.of(node))
    if inner.wire.number == "decimal":
        return Placed(inner.expr, inner.wire, None)
    digits, _ = _digits(inner)
    wire = Wire("string", f"decimal({digits},0)", equal=True, ordered=True, number="decimal")
    made = exp.cast(inner.expr.node, f"decimal({digits}, 0)")
    return Placed(Expr.of(made), wire, None)


def _case(placer: Placer, node: exp.Expression, use: Use) -> Placed:
    assert isinstance(node, exp.Case)
    if node.this is not None:
        raise across(Expr.of(node), "Write it as CASE WHEN x = 1 THEN ...")
    results = [branch.args["true"] for branch in node.args["ifs"]]
    default = node.args.get("default")
    values = results + ([default] if default is not None else [])
    placed = [placer.place(Expr.of(value), use) for value in values]
    wire, type_ = _common(placed, node), placer.type_of(node)
    made = exp.Case(
        ifs=[
            exp.If(this=placer.place(Expr.of(branch.this), "carry").expr.node, true=value.expr.node)
            for branch, value in zip(node.args["ifs"], placed, strict=False)
        ],
        default=placed[-1].expr.node if default is not None else None,
    )
    return Placed(Expr.of(made), wire, type_)


def _coalesce(placer: Placer, node: exp.Expression, use: Use) -> Placed:
    placed = [placer.place(Expr.of(value), use) for value in (node.this, *node.expressions)]
    made = exp.Coalesce(this=placed[0].expr.node, expressions=[one.expr.node for one in placed[1:]])
    return Placed(Expr.of(made), _common(placed, node), placer.type_of(node))


def _common(placed: list[Placed], node: exp.Expression) -> Wire:
    """The one wire that fits all alternatives."""
    if len({one.wire for one in placed}) == 1:
        return placed[0].wire
    if all(one.wire.number in ("int", "decimal") for one in placed):
        digits = [_digits(one) for one in placed]
        before, after = max(d[0] for d in digits), max(d[1] for d in digits)
        precision = min(38, before + after)
        return Wire("string", f"decimal({precision},{after})", equal=True, ordered=True, number="decimal", scale=after)
    raise across(Expr.of(node), "Its alternatives travel in different ways.")


def _is(placer: Placer, node: exp.Expression, use: Use) -> Placed:
    """IS NULL, IS TRUE, IS FALSE."""
    wanted = unwrapped(node.expression)
    if not isinstance(wanted, exp.Null | exp.Boolean):
        raise across(Expr.of(node))
    inner = placer.place(Expr.of(node.this), "carry")
    # sqlglot keeps the NOT of IS NOT NULL inside the node.
    node.set("this", exp.Paren(this=inner.expr.node))
    return Placed(Expr.of(node), wire_of(BOOL), BOOL)


SAFE: dict[type[exp.Expression], Rule] = {
    exp.And: _logical, exp.Or: _logical, exp.Not: _logical, exp.Is: _is,
    exp.EQ: _comparison, exp.NEQ: _comparison, exp.GT: _comparison, exp.GTE: _comparison,
    exp.LT: _comparison, exp.LTE: _comparison, exp.NullSafeEQ: _comparison, exp.NullSafeNEQ: _comparison,
    exp.Add: _arithmetic, exp.Sub: _arithmetic, exp.Mul: _arithmetic, exp.Neg: _negative,
    exp.Cast: _cast, exp.Case: _case, exp.Coalesce: _coalesce,
}  # fmt: skip


def across(expression: Expr, reason: str = "") -> Unsupported:
    """The refusal of an expression over several tables."""
    tables = ", ".join(sorted(expression.aliases))
    return Unsupported.construct(
        f"the expression {expression} over several tables ({tables})",
        reason=reason or "Spark does not compute it exactly as PostgreSQL does.",
        way_round="Compute it from one table's columns, or put it into the select list of a query without GROUP BY.",
    )


def refused_number(expression: Expr, type_: PgType) -> Unsupported:
    """The refusal of arithmetic on a type that Spark has no exact number for."""
    return Unsupported.construct(
        f"arithmetic on {expression} of type {type_.name}",
        reason="Spark has no type that computes with it exactly.",
        way_round="Cast it to numeric(p,s) with p <= 38, to an integer type or to double precision.",
    )


def leaf_ref(placed: Placed) -> Ref | None:
    """The leaf column it is, if it is nothing but one."""
    node = unwrapped(placed.expr.node)
    return ref_of(node) if isinstance(node, exp.Column) else None
