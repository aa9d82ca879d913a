"""Compare numbers of any size in Spark, by a temporary function of the session.

    MILLSTREAM_COMPARE(['2.5', '-0.5', '+'], ['NaN'])     2.5 + -0.5 is less than NaN:   -1

The result is -1, 0 or 1. Spark's decimals have at most 38 digits, and neither NaN nor infinities;
PostgreSQL's numerics have more. So each side is an array of texts in postfix notation: operands as
PostgreSQL prints them, without an exponent, and after two operands the operator + - or *. The
function computes it on a stack, in *limbs*: digits of a number to the base 1,000,000,000. The
number -12345678901.5 is the struct

    s    NULL                               for NaN and the infinities: the value as a double, and d is empty
    d    [-500000000, -345678901, -12]      the limbs, least significant first; as read, each with the number's sign
    f    1                                  how many of them are after the point

A limb is a decimal of 38 digits, so sums of limbs, and sums of products of two limbs, fit without a
carry. A product is carried at once, so that its limbs can be multiplied again. The difference of
the two sides is carried to find its sign.

Special values follow the rules of doubles, which are PostgreSQL's: NaN equals itself and is greater
than all others. Not done as PostgreSQL does it: products of more than 16,383 digits after the
point, which PostgreSQL rounds, and results of more than 131,072 before it, for which it raises an
error.
"""

from __future__ import annotations

COMPARE = "MILLSTREAM_COMPARE"
NO_NUMBER = "Spark has no number for a value"
"""The error of a statement without this function, at the first row that would need it
(`LoweringOptions.exact`).
"""

_LIMB = "DECIMAL(38,0)"
_LIMBS = f"ARRAY<{_LIMB}>"
_NUMBER = f"STRUCT<s: DOUBLE, f: INT, d: {_LIMBS}>"
_BASE = "1000000000BD"
_NONE = f"CAST(ARRAY() AS {_LIMBS})"
_ZERO = f"CAST(0 AS {_LIMB})"


def _let(name: str, value: str, body: str) -> str:
    """Return `body`, in which a name stands for a value that is computed once: SQL expressions have
    no LET.
    """
    return f"TRANSFORM(ARRAY({value}), {name} -> {body})[0]"


def _number(s: str, f: str, d: str) -> str:
    return f"NAMED_STRUCT('s', {s}, 'f', {f}, 'd', {d})"


def _read() -> str:
    """Return the number of a text `t`.

    Its digits are split at the point into w.a and w.b, filled up with zeros to whole limbs (p.a,
    p.b), and cut.
    """
    sides = "NAMED_STRUCT('a', SPLIT_PART(LTRIM('-', t), '.', 1), 'b', SPLIT_PART(t, '.', 2))"
    whole = "LPAD(w.a, LENGTH(w.a) + PMOD(-LENGTH(w.a), 9), '0')"
    fraction = "RPAD(w.b, LENGTH(w.b) + PMOD(-LENGTH(w.b), 9), '0')"
    limb = f"CAST(IF(t LIKE '-%', '-', '') || SUBSTR(p.a || p.b, i, 9) AS {_LIMB})"
    limbs = f"REVERSE(TRANSFORM(SEQUENCE(1, LENGTH(p.a || p.b), 9), i -> {limb}))"
    finite = _number("CAST(NULL AS DOUBLE)", "CAST(LENGTH(p.b) / 9 AS INT)", limbs)
    filled = f"NAMED_STRUCT('a', {whole}, 'b', {fraction})"
    special = _number("CAST(t AS DOUBLE)", "0", _NONE)
    finite = _let("w", sides, _let("p", filled, finite))
    return f"CASE WHEN t IN ('NaN', 'Infinity', '-Infinity') THEN {special} ELSE {finite} END"


def _carried(limbs: str) -> str:
    """Return the limbs after the carry: each from 0 to 999,999,999, and one more, which is negative
    if the number is.

    The fold over the limbs has the carry `c.c` and the limbs so far `c.d`.
    """
    quotient = f"CAST((q - r) DIV {_BASE} AS {_LIMB})"
    step = f"NAMED_STRUCT('c', {quotient}, 'd', ARRAY_APPEND(c.d, CAST(r AS {_LIMB})))"
    step = _let("q", "x + c.c", _let("r", f"PMOD(q, {_BASE})", step))
    start = f"NAMED_STRUCT('c', {_ZERO}, 'd', {_NONE})"
    return f"AGGREGATE({limbs}, {start}, (c, x) -> {step}, c -> ARRAY_APPEND(c.d, c.c))"


def _sign(limbs: str) -> str:
    """Return -1, 0 or 1, the sign of a finite number."""
    found = "CASE WHEN k[SIZE(k) - 1] < 0 THEN -1 WHEN EXISTS(k, x -> x <> 0) THEN 1 ELSE 0 END"
    return _let("k", _carried(limbs), found)


def _sum(one: str, other: str, sign: str) -> str:
    """Return one number plus the other times a sign; zeros at the least significant end align their
    points.
    """
    after = f"GREATEST({one}.f, {other}.f)"
    left, right = (f"CONCAT(ARRAY_REPEAT({_ZERO}, {after} - {n}.f), {n}.d)" for n in (one, other))
    special = f"COALESCE({one}.s, 0) + {sign} * COALESCE({other}.s, 0)"
    limbs = f"ZIP_WITH({left}, {right}, (x, y) -> CAST(COALESCE(x, 0) + {sign} * COALESCE(y, 0) AS {_LIMB}))"
    return _number(f"IF({_is_finite(one, other)}, NULL, {special})", after, limbs)


def _product(one: str, other: str) -> str:
    """Return a product: its limb n is the sum of one.d[i] * other.d[n - i].

    An infinity is multiplied by a sign.
    """
    places = f"SEQUENCE(GREATEST(0, n - SIZE({other}.d) + 1), LEAST(n, SIZE({one}.d) - 1))"
    limb = f"AGGREGATE({places}, {_ZERO}, (z, i) -> CAST(z + {one}.d[i] * {other}.d[n - i] AS {_LIMB}))"
    limbs = f"TRANSFORM(SEQUENCE(0, SIZE({one}.d) + SIZE({other}.d) - 2), n -> {limb})"
    special = " * ".join(f"COALESCE({n}.s, {_sign(f'{n}.d')})" for n in (one, other))
    finite = _is_finite(one, other)
    return _number(
        f"IF({finite}, NULL, {special})",
        f"{one}.f + {other}.f",
        f"IF({finite}, {_carried(limbs)}, {_NONE})",
    )


def _is_finite(one: str, other: str) -> str:
    return f"{one}.s IS NULL AND {other}.s IS NULL"


def _computed(postfix: str) -> str:
    """Return the number of an array in postfix notation, by a fold with the stack `h` over its
    texts `t`.
    """
    # The top of the stack comes first, so the left operand is the second.
    added = _sum("a", "b", "IF(t = '-', -1, 1)")
    result = f"CASE WHEN t = '*' THEN {_product('a', 'b')} ELSE {added} END"
    operator = (
        f"CONCAT(ARRAY({_let('a', 'h[1]', _let('b', 'h[0]', result))}), SLICE(h, 3, SIZE(h)))"
    )
    step = f"CASE WHEN t IN ('+', '-', '*') THEN {operator} ELSE CONCAT(ARRAY({_read()}), h) END"
    stack = f"ARRAY<{_NUMBER}>"
    return f"AGGREGATE({postfix}, CAST(ARRAY() AS {stack}), (h, t) -> CAST({step} AS {stack}), h -> h[0])"


def _compared() -> str:
    """Return the function's body.

    A finite number beside a special value is compared as the double 0.
    """
    finite = _let("e", _sum("a", "b", "-1"), _sign("e.d"))
    one, other = ("COALESCE(a.s, 0)", "COALESCE(b.s, 0)")
    special = f"CASE WHEN {one} < {other} THEN -1 WHEN {one} > {other} THEN 1 ELSE 0 END"
    both = f"CASE WHEN {_is_finite('a', 'b')} THEN {finite} ELSE {special} END"
    return _let("a", _computed("one"), _let("b", _computed("other"), both))


CREATE_COMPARE = (
    f"CREATE OR REPLACE TEMPORARY FUNCTION {COMPARE}(one ARRAY<STRING>, other ARRAY<STRING>) RETURNS INT "
    f"RETURN {_compared()}"
)
