"""Workarounds for queries that are refused: what the hint of the error tells the user to write
instead.

Each of them is followed by a test (tests/test_hints.py): the query is refused, the rewriting is
accepted, and where the rewriting keeps the meaning, PostgreSQL gives the same rows for both.
"""

from __future__ import annotations

from millstream.algebra.types import PgType

# What works for every expression: PostgreSQL evaluates the select list of a query without GROUP BY.
TWO_STEPS = (
    "Make a stream table that has the expression as a column (SELECT ..., expression AS x FROM ... JOIN ...), and read "
    "that stream table here."
)

UNITE_STREAM_TABLES = "Make each part of the UNION ALL a stream table of its own, and unite those."

VIEW = "Keep its arguments as columns of the stream table, and call the function in a view over it."

_FUNCTIONS = {
    **dict.fromkeys(("clock_timestamp", "statement_timestamp", "timeofday"), "Use now()."),
}
_REJECTED = (
    ("has pseudo-type record", "Write the fields of the row as columns, one by one."),
    ("specified more than once", "Give each column a name of its own with AS."),
    (
        "data-modifying statements in WITH",
        "Run the statement on its own: the query of a stream table only reads.",
    ),
)


def for_function(signature: str, volatility: str, *, built_in: bool) -> str:
    """Return the workaround for a call of a function that is not immutable.

    >>> for_function("clock_timestamp()", "volatile", built_in=True)
    'Use now().'
    >>> for_function("score(integer)", "volatile", built_in=False)
    'If its result depends on its arguments alone, say so: ALTER FUNCTION score(integer) IMMUTABLE.'
    """
    if not built_in:
        named = "name it in assume_immutable, or " if volatility == "stable" else ""
        return f"If its result depends on its arguments alone, {named}say so: ALTER FUNCTION {signature} IMMUTABLE."
    return _FUNCTIONS.get(signature.partition("(")[0], VIEW)


def for_rejected(message: str) -> str:
    """Return the workaround for a query that PostgreSQL runs but does not take as the text of a
    view; "" for others.
    """
    return next((hint for words, hint in _REJECTED if words in message), "")


def for_group_key(type_: PgType) -> str:
    """Return the workaround for grouping by a value whose equality Spark does not share.

    >>> for_group_key(PgType(3904, "int4range", "int4range", "range"))
    'Group by lower(x) and upper(x).'
    """
    if type_.kind == "range":
        return "Group by lower(x) and upper(x)."
    if type_.kind == "composite":
        return "Group by its fields: (x).a, (x).b."
    known = {
        "json": "Group by x::text.",
        "jsonb": "Group by x::text.",
        "interval": "Group by extract(epoch FROM x).",
    }
    return known.get(type_.base, "Carry it as a column, and group in a view over the stream table.")
