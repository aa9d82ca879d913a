"""SQL/JSON calls with a path whose result does not depend on their operands alone.

A path may read times in the session's time zone. And a call with ON EMPTY or ON ERROR has, for a
NULL operand, the result of an earlier row (PostgreSQL 17 and 18):

    SELECT JSON_VALUE(j, '$.k' DEFAULT 'none' ON EMPTY) FROM (VALUES ('{}'::jsonb), (NULL)) AS v (j)
    none
    none      but NULL, if the NULL comes first

So such a call is refused, unless its operand is never NULL where it is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import operands, unwrapped
from millstream.algebra.special_calls import SpecialCall
from millstream.errors import Unsupported, Volatile

_VALUES = frozenset({"JSON_EXISTS", "JSON_QUERY", "JSON_VALUE"})
# The methods that read a date or time.
_TIME_METHODS = (".datetime(", ".date(", ".time(", ".time_tz(", ".timestamp(", ".timestamp_tz(")
# What is taken where the path finds nothing, or fails; NULL and ERROR do no harm.
_BEHAVIOUR = re.compile(r"\b(DEFAULT|EMPTY (ARRAY|OBJECT)|TRUE|FALSE|UNKNOWN)\b")
# A path that cannot fail: keys, elements, and a filter at its end, in which errors are unknown.
_HARMLESS = re.compile(
    r"""\$(\."[^"]*"|\.\*|\[(\*|\d+|last|\d+ to (\d+|last))\])*(\?\(.*\))?""", re.DOTALL
)


def check_paths(query: exp.Expression) -> None:
    """Raise a refusal if the result of an SQL/JSON call depends on more than its operands."""
    for call in query.find_all(SpecialCall):
        if call.name_of_call in _VALUES | {"JSON_TABLE"} and _may_read_times(call):
            way = "Take the text out of the JSON, and convert it in a view over the stream table."
            raise Volatile.construct("a JSON path that may read times", way).about(call)
        if call.name_of_call in _VALUES and _may_be_stale(call) and not _is_guarded(call):
            raise _stale(call)


def _may_read_times(call: SpecialCall) -> bool:
    path = call.expressions[1]
    return not isinstance(path, exp.Literal) or any(method in path.name for method in _TIME_METHODS)


def _may_be_stale(call: SpecialCall) -> bool:
    if any(map(_BEHAVIOUR.search, call.args["texts"])):
        return True
    # Without ON ERROR it is false where the path fails.
    path = call.expressions[1]
    return call.name_of_call == "JSON_EXISTS" and not _HARMLESS.fullmatch(path.name)


def _is_guarded(call: SpecialCall) -> bool:
    """Return True if the operand of a call is never NULL where it is evaluated."""
    operand = unwrapped(call.expressions[0])
    if isinstance(operand, exp.Coalesce):
        last = operand.expressions[-1] if operand.expressions else operand.this
        return isinstance(unwrapped(last.this if isinstance(last, exp.Cast) else last), exp.Literal)
    wanted = f"{printed(operand)} IS NOT NULL"
    return any(printed(unwrapped(part)) == wanted for part in _conditions(call))


def _conditions(node: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the conditions of the branches of CASE that a node stands in."""
    child, parent = node, node.parent
    while isinstance(parent, exp.Expression) and not isinstance(parent, exp.Query):
        if isinstance(parent, exp.If) and parent.args.get("true") is child:
            yield from operands(parent.this, exp.And)
        child, parent = parent, parent.parent


def _stale(call: SpecialCall) -> Unsupported:
    return Unsupported.construct(
        f"{call.name_of_call} with ON EMPTY or ON ERROR of a value that may be NULL",
        reason="PostgreSQL may give a NULL the result of an earlier row, so the result depends on the order of rows.",
        way_round="Say what it is for NULL: CASE WHEN x IS NOT NULL THEN JSON_VALUE(x, ...) END.",
        node=call,
    )
