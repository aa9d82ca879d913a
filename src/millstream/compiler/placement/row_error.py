"""Tell the error that an expression raises for a row, by an expression that raises none itself.

A table is read before it is joined, so an expression over it must not raise for a row that the join
discards. Its value is read together with its error, and the error is raised above the join:

    t.n / t.m     value  CASE WHEN (error) IS NULL THEN t.n / t.m END
                  error  COALESCE(CASE WHEN t.m = 0 THEN 'division by zero' END,
                                  CASE WHEN t.n = -2147483648 AND t.m = -1 THEN 'integer out of range' END)

    never raises             price * (1 - discount) of numerics, comparisons, most functions of text: no error is read
    raises, and we know when integers, casts between numbers, division, dates and days, subqueries of several rows
    anything else            `Unforeseen`: a cast of text, a user's function. It is evaluated after the join.

The parts of CASE, COALESCE, AND and OR that PostgreSQL does not evaluate raise nothing.

Left aside: numerics of more than 131,072 digits before the point, timestamps and intervals at the
far ends of their ranges, and texts longer than any can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, is_record, ref_of, unwrapped
from millstream.algebra.types import PgType
from millstream.compiler.placement.spark_exact import children

_NEVER = (
    exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Not, exp.Is, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Any, exp.All, exp.Array, exp.JSONExtract, exp.JSONExtractScalar, exp.Tuple,
    exp.Bracket, exp.Interval, exp.Trim, exp.Extract, exp.DPipe,
)  # fmt: skip
_FUNCTIONS = frozenset(
    {
        "abs", "array_length", "btrim", "cardinality", "ceil", "ceiling", "char_length", "concat", "concat_ws",
        "floor", "greatest", "initcap", "isfinite", "jsonb_typeof", "least", "length",
        "lower", "ltrim", "md5", "nullif", "octet_length", "replace", "reverse", "round", "row", "rtrim", "scale",
        "sign", "starts_with", "strpos", "to_json", "to_jsonb", "trim_scale", "trunc", "upper",
    }
)  # fmt: skip
# Of these the other arguments are constants: they fail for all rows or for none.
_WITH_CONSTANTS = frozenset(
    {"left", "lpad", "mod", "right", "rpad", "split_part", "substr", "substring", "to_char"}
)
# Of these the first names a part of a time.
_PARTS = frozenset({"date_part", "date_trunc"})
_TEXTS = frozenset({"text", "varchar", "bpchar", "name"})
_TIMES = frozenset({"timestamp", "timestamptz", "time", "timetz", "interval"})
_FLOATS = frozenset({"float4", "float8"})
_INTEGERS = {
    "int2": (-(2**15), 2**15 - 1, "smallint out of range"),
    "int4": (-(2**31), 2**31 - 1, "integer out of range"),
    "int8": (-(2**63), 2**63 - 1, "bigint out of range"),
}
_NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
# A cast from one of these to the other has a result for each value.
_WIDER = frozenset(
    {
        *((one, other) for place, one in enumerate(_NUMBERS) for other in _NUMBERS[1 + place :] if one != "numeric"),
        ("bool", "int4"), ("timestamp", "date"), ("timestamp", "timestamptz"), ("timestamptz", "timestamp"),
        ("timestamptz", "date"), ("timestamp", "time"), ("json", "jsonb"), ("jsonb", "json"),
    }
)  # fmt: skip
# The least number that is rounded to infinity, and the greatest that is rounded to 0.
_FLOAT_RANGE = {
    "float4": ("3.4028235677973366e38", "7.0064923216240854e-46", "real"),
    "float8": ("1.7976931348623158080e308", "2.4703282292062327208e-324", "double precision"),
}
# The days of the calendar, counted from 2000-01-01.
_FIRST_DAY, _LAST_DAY = -2451545, 2145031948
# So many checks fit into one expression: each names all that stands before it.
_MOST = 20

SEVERAL_ROWS = "more than one row returned by a subquery used as an expression"

# The types of some parts of an expression.
TypesOf = Callable[[Sequence[Expr]], Sequence[PgType]]
# True for a column that holds texts of which each is read back by the type that has written it.
HoldsText = Callable[[Ref], bool]


@dataclass(frozen=True)
class Unforeseen:
    """Nothing tells for which rows an expression raises."""


def row_error(
    expression: Expr, types_of: TypesOf, holds_text: HoldsText = lambda ref: False
) -> Expr | Unforeseen | None:
    """Return the text of the error that an expression raises, NULL for rows for which it raises
    none.

    Return None if it never raises, and `Unforeseen` if nothing tells when it does.
    """
    node = unwrapped(expression.tree)
    if isinstance(node, exp.Column | exp.Literal | exp.Boolean | exp.Null):
        return None
    wanted = list(dict.fromkeys(_typed_parts(node)))
    found = _RowErrors(
        dict(zip(wanted, types_of(wanted), strict=True)) if wanted else {}, holds_text
    )
    error = found.of(node)
    if found.is_unforeseen or found.checks > _MOST:
        return Unforeseen()
    return Expr.parse(error) if error else None


_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)


def _typed_parts(node: exp.Expression) -> Iterator[Expr]:
    """Yield the parts of an expression whose types decide whether it raises."""
    kinds = (*_ARITHMETIC, exp.Neg, exp.Cast, exp.Anonymous, exp.DPipe)
    # No column has the type of an anonymous row, and casting to it never raises.
    for part in (part for part in node.walk() if isinstance(part, kinds) and not is_record(part)):
        if isinstance(part, exp.Anonymous):
            if part.name.lower() == "abs":
                yield Expr.of(part)
            continue
        yield Expr.of(part)
        for operand in (part.this, part.args.get("expression")):
            if isinstance(operand, exp.Expression) and not _has_no_type(unwrapped(operand)):
                yield Expr.of(unwrapped(operand))


def _has_no_type(node: exp.Expression) -> bool:
    return isinstance(node, exp.Null) or is_record(node)


@dataclass
class _RowErrors:
    """The errors of the parts of one expression."""

    types: Mapping[Expr, PgType]
    holds_text: HoldsText
    checks: int = 0
    is_unforeseen: bool = False
    """True if nothing tells when some part raises; what is returned for the parts does not matter
    then.
    """
    _rules: Mapping[type[exp.Expression], Callable[[_RowErrors, exp.Expression], str]] = field(
        default_factory=lambda: _RULES
    )

    def of(self, node: exp.Expression) -> str:
        """Return the error of a part; empty if it never raises."""
        node = unwrapped(node)
        # A part without columns raises for all rows or for none.
        if self.is_unforeseen or node.find(exp.Column) is None:
            return ""
        if rule := self._rules.get(type(node)):
            return rule(self, node)
        if not isinstance(node, _NEVER):
            return self.unforeseen()
        return self.all(child for child in children(node) if isinstance(child, exp.Expression))

    def all(self, nodes: Iterator[exp.Expression] | Sequence[exp.Expression]) -> str:
        """Return the first error of some parts that are all evaluated."""
        return _first(self.of(node) for node in nodes)

    def check(self, condition: str, error: str) -> str:
        """Return the error of the rows for which a condition holds."""
        self.checks += 1
        return f"CASE WHEN {condition} THEN '{error}' END"

    def never(self, *nodes: exp.Expression) -> None:
        """Require that some parts never raise."""
        if any(self.of(node) for node in nodes):
            self.unforeseen()

    def unforeseen(self) -> str:
        """Note that nothing tells when a part raises."""
        self.is_unforeseen = True
        return ""

    # -- operators ---------------------------------------------------------------------------

    def arithmetic(self, node: exp.Expression) -> str:
        return _first([self.all([node.this, node.expression]), self._operator(node)])

    def _operator(self, node: exp.Expression) -> str:
        """Return the error of an operator itself, apart from those of its operands."""
        result, left, right = (self._base(part) for part in (node, node.this, node.expression))
        operands = {left, right}
        if operands | {result} <= {*_INTEGERS, "numeric"}:
            return self._number(node, result)
        if (
            result == "date"
            and operands - {"date"} <= _INTEGERS.keys()
            and not isinstance(node, exp.Mul)
        ):
            return self._day(node)
        if operands == {"date"} and isinstance(node, exp.Sub):
            finite = " AND ".join(
                f"isfinite({_sql(part)})" for part in (node.this, node.expression)
            )
            return self.check(f"NOT ({finite})", "cannot subtract infinite dates")
        if (
            result in _TIMES
            and isinstance(node, exp.Add | exp.Sub)
            and operands <= {*_TIMES, "date"}
        ):
            return ""
        return self.unforeseen()

    def _number(self, node: exp.Expression, result: str) -> str:
        left, right = _sql(node.this), _sql(node.expression)
        zero = ""
        if isinstance(node, exp.Div | exp.Mod) and not _is_constant_but_zero(node.expression):
            divided = f"{left} <> 'NaN'::numeric" if result == "numeric" else f"{left} IS NOT NULL"
            zero = self.check(f"{right} = 0 AND {divided}", "division by zero")
        if result == "numeric" or isinstance(node, exp.Mod):
            return zero
        least, most, error = _INTEGERS[result]
        if isinstance(node, exp.Div):
            by_minus_one = "" if _is_constant_but(node.expression, "-1") else self.check(
                f"{left} = ({least}) AND {right} = -1", error
            )  # fmt: skip
            return _first([zero, by_minus_one])
        low, high = self._bounds(node, clipped=False)
        if least <= low and high <= most:
            return ""
        wide = "numeric" if result == "int8" else "int8"
        computed = f"({left})::{wide} {_SIGNS[type(node)]} ({right})::{wide}"
        return self.check(f"{computed} NOT BETWEEN ({least}) AND {most}", error)

    def _day(self, node: exp.Expression) -> str:
        """Return the error of a day plus or minus some days; the infinities never raise it."""
        day, days = (
            (node.this, node.expression)
            if self._base(node.this) == "date"
            else (node.expression, node.this)
        )
        number = (
            f"({_sql(day)} - DATE '2000-01-01')::int8 {_SIGNS[type(node)]} ({_sql(days)})::int8"
        )
        beyond = f"{number} NOT BETWEEN ({_FIRST_DAY}) AND {_LAST_DAY}"
        return self.check(f"CASE WHEN isfinite({_sql(day)}) THEN {beyond} END", "date out of range")

    def negative(self, node: exp.Expression) -> str:
        base = self._base(node)
        inner = self.of(node.this)
        if base in _INTEGERS:
            least, _, error = _INTEGERS[base]
            low, _ = self._bounds(node.this)
            return (
                inner
                if low > least
                else _first([inner, self.check(f"{_sql(node.this)} = ({least})", error)])
            )
        if base in {"numeric", *_FLOATS}:
            return inner
        return self.unforeseen()

    def concatenation(self, node: exp.Expression) -> str:
        """Return the error of `||`; unforeseen for arrays, whose dimensions must fit."""
        if any(self.types[Expr.of(unwrapped(part))].kind == "array" for part in (node.this, node.expression)
               if not isinstance(unwrapped(part), exp.Null)):  # fmt: skip
            return self.unforeseen()
        return self.all([node.this, node.expression])

    def _base(self, node: exp.Expression) -> str:
        """Return the type of a part; a type of a user has operators of its own."""
        type_ = self.types[Expr.of(unwrapped(node))]
        return type_.base if type_.kind in ("base", "domain") else f"{type_.kind} {type_.base}"

    def _bounds(self, node: exp.Expression, *, clipped: bool = True) -> tuple[int, int]:
        """Return the least and greatest value that an integer can have."""
        node = unwrapped(node)
        if isinstance(node, exp.Literal) and node.name.isdigit():
            return int(node.name), int(node.name)
        base = self._base(node) if Expr.of(node) in self.types else ""
        least, most, _ = _INTEGERS.get(base, _INTEGERS["int8"])
        found = self._computed(node)
        if found is None or not clipped:
            return found or (least, most)
        return max(least, found[0]), min(most, found[1])

    def _computed(self, node: exp.Expression) -> tuple[int, int] | None:
        if isinstance(node, exp.Neg):
            low, high = self._bounds(node.this)
            return -high, -low
        if not isinstance(node, exp.Add | exp.Sub | exp.Mul):
            return None
        (a, b), (c, d) = self._bounds(node.this), self._bounds(node.expression)
        if isinstance(node, exp.Add):
            return a + c, b + d
        if isinstance(node, exp.Sub):
            return a - d, b - c
        corners = [a * c, a * d, b * c, b * d]
        return min(corners), max(corners)

    # -- casts and functions -----------------------------------------------------------------

    def cast(self, node: exp.Expression) -> str:
        inner = unwrapped(node.this)
        if is_record(node):
            return self.of(inner)
        if is_record(inner):
            # A row that is cast to a composite type has its values cast.
            return self.unforeseen()
        if isinstance(inner, exp.Null) or (
            isinstance(inner, exp.Column) and self.holds_text(ref_of(inner))
        ):
            return ""
        source, target = self.types[Expr.of(inner)], self.types[Expr.of(node)]
        return _first([self.of(inner), self._converted(inner, source, target)])

    def _converted(self, inner: exp.Expression, source: PgType, target: PgType) -> str:
        """Return the error of a cast from one type to another, apart from that of its operand."""
        if target.base in _TEXTS or source == target:
            return ""
        if target.kind != "base" or source.kind not in ("base", "domain"):
            return self.unforeseen()
        value = _sql(inner)
        if target.precision is not None:
            if target.base != "numeric" or source.base not in {*_INTEGERS, "numeric"}:
                return self.unforeseen()
            return self._shortened(value, target)
        if source.base == target.base or (source.base, target.base) in _WIDER:
            return ""
        if target.base in _INTEGERS and source.base in _NUMBERS:
            return self._to_integer(value, source.base, target.base)
        if target.base in _FLOATS and source.base == "numeric":
            return self._to_float(value, target.base)
        if source.base == "date" and target.base in ("timestamp", "timestamptz"):
            late = f"isfinite({value}) AND {value} > DATE '294276-12-31'"
            return self.check(late, "date out of range for timestamp")
        return self.unforeseen()

    def _to_integer(self, value: str, source: str, target: str) -> str:
        least, most, error = _INTEGERS[target]
        if source in _FLOATS:
            # NaN is greater than all numbers. The greatest integers are not floats, the number
            # after them is.
            whole = f"round(({value})::float8)"
            return self.check(
                f"{whole} < '{least}'::float8 OR {whole} >= '{most + 1}'::float8", error
            )
        rounded = f"round({value})" if source == "numeric" else value
        return self.check(f"{rounded} NOT BETWEEN ({least}) AND {most}", error)

    def _to_float(self, value: str, target: str) -> str:
        most, least, name = _FLOAT_RANGE[target]
        is_number = f"{value} NOT IN ('NaN'::numeric, 'Infinity'::numeric, '-Infinity'::numeric)"
        out_of_range = f"(abs({value}) >= {most} OR ({value} <> 0 AND abs({value}) <= {least}))"
        return self.check(
            f"{is_number} AND {out_of_range}", f"value is out of range for type {name}"
        )

    def _shortened(self, value: str, type_: PgType) -> str:
        assert type_.precision is not None
        scale = type_.scale or 0
        limit = f"1e{type_.precision - scale}"
        return self.check(
            f"({value})::numeric <> 'NaN'::numeric AND abs(round(({value})::numeric, {scale})) >= {limit}",
            "numeric field overflow",
        )

    def call(self, node: exp.Expression) -> str:
        return self._called(node, node.name.lower(), node.expressions)

    def substring(self, node: exp.Expression) -> str:
        return self._called(node, "substring", children(node))

    def _called(self, node: exp.Expression, name: str, arguments: list[exp.Expression]) -> str:
        if name in _WITH_CONSTANTS:
            first, *others = arguments
            if not all(map(_is_constant, others)) or (name == "mod" and any(map(_is_zero, others))):
                return self.unforeseen()
            return self.of(first)
        if name in _PARTS and not _is_constant(arguments[0]):
            return self.unforeseen()
        if name not in _FUNCTIONS | _PARTS:
            return self.unforeseen()
        errors = self.all(arguments)
        if name == "abs" and self._base(node) in _INTEGERS:
            least, _, error = _INTEGERS[self._base(node)]
            return _first([errors, self.check(f"{_sql(arguments[0])} = ({least})", error)])
        return errors

    def with_constant(self, node: exp.Expression) -> str:
        """Return the error of LIKE or AT TIME ZONE; unforeseen unless the pattern or the zone is a
        constant.
        """
        constant = node.args.get("zone") or node.expression
        if not _is_constant(constant):
            return self.unforeseen()
        return self.of(node.this)

    # -- parts that are not always evaluated -------------------------------------------------

    def and_(self, node: exp.Expression) -> str:
        return self._shortcut(node, "IS NOT FALSE")

    def or_(self, node: exp.Expression) -> str:
        return self._shortcut(node, "IS NOT TRUE")

    def _shortcut(self, node: exp.Expression, goes_on: str) -> str:
        return _first(
            [self.of(node.this), _when(f"({_sql(node.this)}) {goes_on}", self.of(node.expression))]
        )

    def case(self, node: exp.Expression) -> str:
        assert isinstance(node, exp.Case)
        default = node.args.get("default")
        error = self.of(default) if default is not None else ""
        for branch in reversed(node.args["ifs"]):
            condition, value = branch.this, self.of(branch.args["true"])
            compared = (
                f"{_sql(node.this)} = {_sql(condition)}"
                if node.this is not None
                else _sql(condition)
            )
            chosen = (
                f"CASE WHEN {compared} THEN {value or 'NULL'} ELSE {error or 'NULL'} END"
                if value or error
                else ""
            )
            error = _first([self.of(condition), chosen])
        return _first([self.of(node.this) if node.this is not None else "", error])

    def coalesce(self, node: exp.Expression) -> str:
        error = ""
        for part in reversed([node.this, *node.expressions]):
            error = _first([self.of(part), _when(f"({_sql(part)}) IS NULL", error)])
        return error

    def between(self, node: exp.Expression) -> str:
        self.never(node.args["low"], node.args["high"])
        return self.of(node.this)

    def in_(self, node: exp.Expression) -> str:
        self.never(*node.expressions)
        return self.of(node.this)

    def subquery(self, node: exp.Expression) -> str:
        """Return the error of a scalar subquery: more than one row."""
        found = several_rows(node)
        if found is None:
            return self.unforeseen()
        return self.check(f"{found} > 1", SEVERAL_ROWS)


def several_rows(node: exp.Expression) -> str | None:
    """Return the number of rows of a subquery over generate_series(1, number); None for any other."""
    select = unwrapped(node.this)
    source = select.args.get("from_") if isinstance(select, exp.Select) else None
    call = source.this.this if source is not None else None
    if not isinstance(call, exp.Anonymous) or call.name.lower() != "generate_series":
        return None
    return _sql(call.expressions[1])


_RULES: Mapping[type[exp.Expression], Callable[[_RowErrors, exp.Expression], str]] = {
    **dict.fromkeys(_ARITHMETIC, _RowErrors.arithmetic),
    exp.Neg: _RowErrors.negative, exp.DPipe: _RowErrors.concatenation, exp.Cast: _RowErrors.cast,
    exp.Anonymous: _RowErrors.call, exp.Substring: _RowErrors.substring, exp.Like: _RowErrors.with_constant,
    exp.ILike: _RowErrors.with_constant, exp.AtTimeZone: _RowErrors.with_constant, exp.And: _RowErrors.and_,
    exp.Or: _RowErrors.or_, exp.Case: _RowErrors.case, exp.Coalesce: _RowErrors.coalesce,
    exp.Between: _RowErrors.between, exp.In: _RowErrors.in_, exp.Subquery: _RowErrors.subquery,
}  # fmt: skip
_SIGNS: dict[type[exp.Expression], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def _sql(node: exp.Expression) -> str:
    return f"({Expr.of(unwrapped(node)).sql})"


def _first(errors: Iterator[str] | Sequence[str]) -> str:
    """Return the first of some errors that is not NULL."""
    found = [error for error in errors if error]
    return f"COALESCE({', '.join(found)})" if len(found) > 1 else "".join(found)


def _when(condition: str, error: str) -> str:
    return f"CASE WHEN {condition} THEN {error} END" if error else ""


def _is_constant(node: exp.Expression) -> bool:
    inner = unwrapped(node)
    inner = unwrapped(inner.this) if isinstance(inner, exp.Cast | exp.Neg) else inner
    return isinstance(inner, exp.Literal | exp.Null | exp.Boolean)


def _is_zero(node: exp.Expression) -> bool:
    return not any(digit in node.sql() for digit in "123456789")


def _is_constant_but_zero(node: exp.Expression) -> bool:
    return _is_constant(node) and not _is_zero(node)


def _is_constant_but(node: exp.Expression, text: str) -> bool:
    return _is_constant(node) and text not in node.sql().replace(" ", "").replace("(", "")
