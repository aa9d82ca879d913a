"""How a PostgreSQL value travels to Spark and back, exactly.

A read sends each value through `encode`; a bool, an integer, a float or a string arrives, and
nothing else. `decode` turns it back. A type that Spark cannot compute with travels as its exact
text (see `text_io`), so any type can be carried. `equal` and `ordered` tell whether Spark's `=` and
`<` on the travelling form have the meaning of PostgreSQL's. If they do not, keys, comparisons and
extremes of that type are refused or left to PostgreSQL.

    date         -> days since 2000-01-01; the two infinities are the two ends of int4
    timestamptz  -> microseconds since 2000-01-01 UTC; infinities are the ends of int8
    numeric(p,s) -> its text; becomes decimal(p,s) where Spark must compute with it
    numeric      -> where Spark only compares it, a text in the order of the numbers
    char(n)      -> without its padding, as PostgreSQL compares it; its length is in its type
    bpchar       -> with its blanks, by its output function; as a key without them, as PostgreSQL compares it
    jsonb        -> its text; carried only

>>> wire_of(PgType(1082, "date", "date")).encode_sql("d")[:24]
'CASE WHEN isfinite((d)) '
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa

from millstream.algebra import text_io
from millstream.algebra.types import PgType

Number = Literal["int", "decimal", "float"]

_DAY = 86_400_000_000

_DATE_IN = (
    "CASE WHEN isfinite({x}) THEN {x} - DATE '2000-01-01' "
    "WHEN {x} > DATE '2000-01-01' THEN 2147483647 WHEN {x} < DATE '2000-01-01' THEN -2147483648 END"
)
_DATE_OUT = (
    "CASE {x} WHEN 2147483647 THEN DATE 'infinity' WHEN -2147483648 THEN DATE '-infinity' "
    "ELSE DATE '2000-01-01' + {x} END"
)
# Day and time of day apart: extract(epoch) of a whole timestamp rounds at the far ends of its
# range.
_MICROSECONDS = f"({{x}}::date - DATE '2000-01-01')::int8 * {_DAY} + (extract(epoch FROM {{x}}::time) * 1000000)::int8"
_STAMP_IN = (
    "CASE WHEN isfinite({x}) THEN " + _MICROSECONDS + " "
    "WHEN {x} > '2000-01-01' THEN 9223372036854775807 WHEN {x} < '2000-01-01' THEN (-9223372036854775808)::int8 END"
)
# Days and the rest apart: an interval times a number goes through float8, exact only while it is
# small.
_STAMP = (
    f"(DATE '2000-01-01' + ({{x}} / {_DAY} - CASE WHEN {{x}} % {_DAY} < 0 THEN 1 ELSE 0 END)::int4"
    f" + (({{x}} % {_DAY} + {_DAY}) % {_DAY}) * INTERVAL '1 microsecond')"
)
_STAMP_OUT = (
    "CASE {x} WHEN 9223372036854775807 THEN 'infinity'::timestamp "
    "WHEN (-9223372036854775808)::int8 THEN '-infinity'::timestamp ELSE " + _STAMP + " END"
)
# '24:00:00' is a time of its own, not midnight.
_TIME_OUT = "CASE {x} WHEN 86400000000 THEN TIME '24:00:00' ELSE TIME '00:00:00' + {x} * INTERVAL '1 microsecond' END"

# Types whose text is the same exactly when PostgreSQL's `=` says the values are.
_CANONICAL_TEXT = frozenset(
    [
        "uuid",
        "bytea",
        "oid",
        "inet",
        "cidr",
        "macaddr",
        "macaddr8",
        "bit",
        "varbit",
        "timetz",
        "pg_lsn",
        "xid8",
        "char",
        "name",
        "regclass",
    ]
)
_ORDERED_TEXT = frozenset({"uuid", "bytea"})
# Types whose text is their value, where they are parts of arrays and composites.
_CANONICAL_PARTS = _CANONICAL_TEXT | {
    "bool",
    "int2",
    "int4",
    "int8",
    "text",
    "varchar",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "enum",
}
# Ranges of which equal ones have equal bounds, as text too; those of integers and days are made so.
_CANONICAL_RANGES = frozenset(
    f"{subtype}{kind}"
    for subtype in ("int4", "int8", "date", "ts", "tstz")
    for kind in ("range", "multirange")
)
_CANONICAL_PARTS |= _CANONICAL_RANGES

# jsonb keeps the digits of its numbers. In its text, a string is what is in quotes; elsewhere, zeros
# at the end of a fraction are no part of the value.
_JSON_ZEROS = r"""("(?:[^"\\]|\\.)*")|(\.[0-9]*[1-9])0+(?![0-9])|\.0+(?![0-9])"""
_BOUNDS = "(CASE WHEN lower_inc({x}) THEN '[' ELSE '(' END || CASE WHEN upper_inc({x}) THEN ']' ELSE ')' END)"
# Equal values of these types print differently: a key travels in one form, and the group stores
# what it shows beside it.
_REWRITTEN = {
    "jsonb": "regexp_replace({x}::text, '" + _JSON_ZEROS + r"', '\1\2', 'g')::jsonb",
    "interval": "justify_interval({x})",
    "numrange": "CASE WHEN {x} IS NULL OR isempty({x}) THEN {x} ELSE "
    f"numrange(trim_scale(lower({{x}})), trim_scale(upper({{x}})), {_BOUNDS}) END",
}


@dataclass(frozen=True)
class Wire:
    """One way to travel: the Arrow and Spark types, and the SQL at both ends."""

    arrow: str
    """Arrow's name of the type that arrives: bool, int16, int32, int64, float, double or string."""
    spark: str
    """The Spark SQL type that it is used as; differs from `arrow` for decimals."""
    encode: str = "{x}"
    decode: str = "{x}"
    equal: bool = False
    ordered: bool = False
    number: Number | None = None
    scale: int = 0
    """For a decimal: the number of digits after the point."""
    canonical: str = "{x}"
    """Applied before `encode` if the value is a key: makes equal values identical."""

    def __post_init__(self) -> None:
        if self.ordered and not self.equal:
            raise ValueError("a wire cannot be ordered without equality")

    @cached_property
    def arrow_type(self) -> pa.DataType:
        return _ARROW[self.arrow]

    def encode_sql(self, expression: str) -> str:
        """Return PostgreSQL's SQL that sends a value."""
        return self.encode.format(x=f"({expression})")

    def key_sql(self, expression: str) -> str:
        """Return PostgreSQL's SQL that sends a key of a group or a join."""
        return self.encode_sql(self.canonical.format(x=f"({expression})"))

    def decode_sql(self, expression: str, type_: PgType) -> str:
        """Return PostgreSQL's SQL that turns the travelling form back into a value of the type."""
        if type_.output:
            return text_io.input_sql(expression, type_)
        return f"({self.decode.format(x=expression)})::{type_.name}"


_ARROW = {
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}

_FIXED = {
    "bool": Wire("bool", "boolean", equal=True, ordered=True),
    "int2": Wire("int16", "smallint", equal=True, ordered=True, number="int"),
    "int4": Wire("int32", "int", equal=True, ordered=True, number="int"),
    "int8": Wire("int64", "bigint", equal=True, ordered=True, number="int"),
    # Adding zero turns -0 into 0: PostgreSQL says they are equal.
    "float4": Wire(
        "float", "float", equal=True, ordered=True, number="float", canonical="({x} + 0::float4)"
    ),
    "float8": Wire(
        "double", "double", equal=True, ordered=True, number="float", canonical="({x} + 0::float8)"
    ),
    "date": Wire("int32", "int", _DATE_IN, _DATE_OUT, equal=True, ordered=True),
    "timestamp": Wire("int64", "bigint", _STAMP_IN, _STAMP_OUT, equal=True, ordered=True),
    "timestamptz": Wire(
        "int64",
        "bigint",
        _STAMP_IN.replace("{x}", "({x} AT TIME ZONE 'UTC')"),
        "(" + _STAMP_OUT + ") AT TIME ZONE 'UTC'",
        equal=True,
        ordered=True,
    ),
    "time": Wire(
        "int64",
        "bigint",
        "(extract(epoch FROM {x}) * 1000000)::int8",
        _TIME_OUT,
        equal=True,
        ordered=True,
    ),
}

# A text for each number that sorts as the number does: the count of digits before the point, then
# all digits. For a negative number each digit d becomes 9 - d, and the text ends with a character
# above all digits.
_MAGNITUDE = "lpad(length(split_part(trim_scale(abs({x}))::text, '.', 1))::text, 6, '0') || trim_scale(abs({x}))::text"
_ORDER = (
    "(SELECT CASE WHEN n = 'NaN' THEN '9' WHEN n = 'Infinity' THEN '8' WHEN n = '-Infinity' THEN '0' "
    "WHEN n >= 0 THEN '5' || " + _MAGNITUDE.replace("{x}", "n") + " "
    "WHEN n < 0 THEN '4' || translate("
    + _MAGNITUDE.replace("{x}", "n")
    + ", '0123456789', '9876543210') || '~' END "
    "FROM (SELECT {x}::numeric AS n) AS o)"
)

# Digits of a numeric without declared precision if Spark computes with it: 20 before the point, 18
# after.
FREE_SCALE = 18
_FREE_LIMIT = "1e20"
# If it is only added up, the digits 19 to 46 after the point travel beside it, as a whole number.
# Spark can add 10 to the power of 10 such whole numbers.
FINE_SCALE = 46
# NaN, the infinities and numbers of more digits travel as their text, beside a 0.
_BEYOND = f"(abs({{x}}) >= {_FREE_LIMIT} OR (scale({{x}}) > {FINE_SCALE} AND scale(trim_scale({{x}})) > {FINE_SCALE}))"
SPECIAL = ("NaN", "Infinity", "-Infinity")


def wire_of(type_: PgType) -> Wire:
    """Return how a value of this type travels if Spark does not compute with it."""
    if type_.kind == "base" and type_.base in _FIXED:
        return _FIXED[type_.base]
    if _is_bpchar(type_):
        return printed_wire_of(type_) if type_.keeps_blanks else key_wire_of(type_)
    if type_.base in ("text", "varchar") and type_.kind == "base":
        equal = type_.collation != "nondeterministic"
        return Wire(
            "string", "string", "{x}::text", equal=equal, ordered=equal and type_.collation == "C"
        )
    if type_.base == "numeric" and type_.kind == "base":
        return Wire("string", "string", "{x}::text", equal=True, canonical="trim_scale({x})")
    return _as_text(type_)


def is_rewritten(type_: PgType) -> bool:
    """True if equal values of a type print differently, and a key of it travels in one form: jsonb,
    interval, numrange.
    """
    return type_.kind in ("base", "range") and type_.base in _REWRITTEN and not type_.output


def prints_alike(type_: PgType) -> bool:
    """True if equal values of a type print alike: there is no 1.0 beside 1.00, and no 'a' beside
    'A'.
    """
    if type_.keeps_blanks:
        return False
    if type_.base == "numeric" and type_.kind == "base":
        # All values have the digits after the point that the type declares.
        return type_.scale is not None
    wire = key_wire_of(type_)
    return wire.equal and wire.canonical == "{x}"


def key_wire_of(type_: PgType) -> Wire:
    """Return how a key of a join or group travels: as `wire_of`, but a bpchar without its trailing
    blanks.
    """
    if not _is_bpchar(type_):
        return wire_of(type_)
    # The cast to text strips the blanks.
    return Wire("string", "string", "{x}::text", equal=type_.collation != "nondeterministic")


def printed_wire_of(type_: PgType) -> Wire:
    """Return how an alternative of CASE or COALESCE travels: as `wire_of`, but a bpchar with its
    trailing blanks.
    """
    if not _is_bpchar(type_):
        return wire_of(type_)
    encode = text_io.output_sql("{x}", type_)
    return Wire("string", "string", encode, equal=type_.collation != "nondeterministic")


def _is_bpchar(type_: PgType) -> bool:
    return type_.kind == "base" and type_.base == "bpchar"


def _as_text(type_: PgType) -> Wire:
    ordered = type_.kind == "base" and type_.base in _ORDERED_TEXT
    encode = (
        text_io.output_sql("\0", type_).replace("{", "{{").replace("}", "}}").replace("\0", "{x}")
    )
    if is_rewritten(type_):
        return Wire("string", "string", encode, equal=True, canonical=_REWRITTEN[type_.base])
    return Wire("string", "string", encode, equal=_has_canonical_text(type_), ordered=ordered)


def _has_canonical_text(type_: PgType) -> bool:
    """True if values of a type are equal exactly when their texts are."""
    match type_.kind:
        case "enum":
            return True
        case "base":
            return type_.base in _CANONICAL_TEXT
        case "range":
            return type_.base in _CANONICAL_RANGES
        case "array" | "composite":
            parts = set(type_.parts or (type_.element or "",))
            return parts <= _CANONICAL_PARTS and type_.collation != "nondeterministic"
    return False


def number_wire_of(type_: PgType) -> Wire | None:
    """Return how a number travels that Spark computes with; None if Spark cannot compute with it
    exactly.
    """
    if type_.kind != "base":
        return None
    if type_.base != "numeric":
        wire = _FIXED.get(type_.base)
        return wire if wire and wire.number else None
    if type_.precision is not None and type_.scale is not None:
        return _declared(type_.precision, type_.scale)
    return _free()


def order_wire_of(type_: PgType) -> Wire | None:
    """Return how a number of any number of digits travels that Spark only compares: see `_ORDER`."""
    if type_.kind != "base" or type_.base not in ("int2", "int4", "int8", "numeric"):
        return None
    return Wire("string", "string", _ORDER, equal=True, ordered=True)


def added_wire_of(type_: PgType) -> Wire | None:
    """Return how a numeric of declared digits travels that is only added up: NaN as 0, with `NAN`
    beside it.
    """
    wire = number_wire_of(type_)
    return (
        replace(wire, encode="CASE WHEN {x} = 'NaN' THEN '0' ELSE {x}::text END") if wire else None
    )


def tried_wire_of(type_: PgType) -> Wire | None:
    """Return how a numeric travels that may not fit Spark's decimal: NULL then, with
    `untried_wire_of` beside it.
    """
    wire = number_wire_of(type_)
    if wire is None:
        # Of more digits than 38 are declared: each value travels beside it.
        return Wire("string", "decimal(38,0)", "NULL::text", number="decimal")
    return replace(wire, encode=f"CASE WHEN NOT {_untried(type_)} THEN {{x}}::text END")


def untried_wire_of(type_: PgType) -> Wire:
    """Return how the numbers travel that `tried_wire_of` leaves out: as their text."""
    return Wire("string", "string", f"CASE WHEN {_untried(type_)} THEN {{x}}::text END")


def _untried(type_: PgType) -> str:
    if number_wire_of(type_) is None:
        return "({x} IS NOT NULL)"
    if type_.precision is None or type_.scale is None:
        return f"(abs({{x}}) >= {_FREE_LIMIT} OR scale({{x}}) > {FREE_SCALE})"
    # The digits of an expression are those that its columns declare, but no more than Spark's
    # decimals have.
    return (
        f"(abs({{x}}) >= 1e{type_.precision - type_.scale})"
        if type_.precision == 38
        else "({x} = 'NaN')"
    )


def extreme_wire_of(type_: PgType) -> Wire | None:
    """Return how a numeric travels whose least or greatest value Spark finds; NaN is greater than
    all others.
    """
    wire, precision, scale = number_wire_of(type_), type_.precision, type_.scale
    if wire is None or precision is None or scale is None or not 0 <= scale <= precision < 38:
        return order_wire_of(type_)
    encode = f"CASE WHEN {{x}} = 'NaN' THEN '1{'0' * (precision - scale)}' ELSE {{x}}::text END"
    return replace(wire, spark=f"decimal({precision + 1},{scale})", encode=encode)


def _declared(precision: int, scale: int) -> Wire | None:
    if scale < 0:
        # numeric(3,-2), since PostgreSQL 15, holds multiples of 100 with up to five digits before
        # the point.
        precision, scale = precision - scale, 0
    if precision > 38 or not 0 <= scale <= precision:
        return None
    spark = f"decimal({precision},{scale})"
    return Wire(
        "string", spark, "{x}::text", equal=True, ordered=True, number="decimal", scale=scale
    )


def _free() -> Wire:
    # Spark's cast would round a value with too many digits. Send a sentence instead: the cast fails
    # and quotes it.
    encode = (
        f"CASE WHEN scale(trim_scale({{x}})) > {FREE_SCALE} OR abs({{x}}) >= {_FREE_LIMIT} "
        f"THEN 'out of range: ' || ({{x}})::text ELSE trim_scale({{x}})::text END"
    )
    return Wire(
        "string",
        f"decimal(38,{FREE_SCALE})",
        encode,
        equal=True,
        ordered=True,
        number="decimal",
        scale=FREE_SCALE,
    )


def _coarse() -> Wire:
    encode = f"CASE WHEN {_BEYOND} THEN '0' ELSE trim_scale(trunc({{x}}, {FREE_SCALE}))::text END"
    return Wire("string", f"decimal(38,{FREE_SCALE})", encode, number="decimal", scale=FREE_SCALE)


def _fine() -> Wire:
    rest = f"trunc(({{x}} - trunc({{x}}, {FREE_SCALE})) * 1e{FINE_SCALE})::text"
    encode = f"CASE WHEN scale({{x}}) > {FREE_SCALE} AND scale(trim_scale({{x}})) > {FREE_SCALE} AND NOT {_BEYOND} "
    return Wire("string", "decimal(38,0)", f"{encode}THEN {rest} END", number="decimal")


# The parts of a number that is only added up: x = coarse + fine / 10^46, or beyond. Most numbers
# have a coarse part only; their other parts are NULL.
COARSE = _coarse()
FINE = _fine()
BEYOND = Wire("string", "string", f"CASE WHEN {_BEYOND} THEN ({{x}})::text END")
NAN = Wire("string", "string", "CASE WHEN {x} = 'NaN' THEN 'NaN' END")


def sum_in_parts(wire: Wire) -> Wire:
    """Return how a sum of coarse parts leaves Spark: the sum of the whole numbers and the sum of
    the fractions.

    Added up apart, neither has too many digits for Spark.
    """
    return Wire("string", wire.spark, decode=_TWO_PARTS, number="decimal", scale=wire.scale)


def is_in_parts(wire: Wire | None) -> bool:
    """True if a sum leaves Spark in two parts."""
    return wire is not None and wire.decode == _TWO_PARTS


def computed_sum(expression: str, wanted: str) -> Wire:
    """Return how operands leave Spark if PostgreSQL computes an expression over them.

    In `expression`, `{p}` stands for the JSON object of the operands. `wanted` is an aggregate over
    the results `r.x`, each with its net count `r.n`.
    """
    value = expression.replace("{p}", "((e ->> 'v')::json)").replace("{", "{{").replace("}", "}}")
    rows = f"SELECT {value} AS x, (e ->> 'n')::numeric AS n FROM json_array_elements(({{x}})::json) AS e"
    return Wire("string", "string", decode=f"(SELECT coalesce({wanted}, 0) FROM ({rows}) AS r)")


_TWO_PARTS = "(split_part({x}, ' ', 1)::numeric + split_part({x}, ' ', 2)::numeric)"
COARSE_SUM = Wire(
    "string", f"decimal(38,{FREE_SCALE})", number="decimal", scale=FREE_SCALE,
    decode=_TWO_PARTS,
)  # fmt: skip
BEYOND_SUM = Wire(
    "string", "string",
    decode="(SELECT coalesce(sum((e ->> 'v')::numeric * (e ->> 'n')::numeric), 0) "
    "FROM json_array_elements(({x})::json) AS e)",
)  # fmt: skip
