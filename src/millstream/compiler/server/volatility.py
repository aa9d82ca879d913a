"""Stable functions that are in effect immutable for arguments of plain types.

json_agg, concat, format and others print their arguments. The text of a timestamptz or a float
depends on session settings, so PostgreSQL declares them stable. The text of a number, a text or a
uuid does not.

ZONED functions depend on the session's time zone only. A query that reads the time is evaluated in
UTC, so in such a query they are in effect immutable.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.compiler.server.node_tree import Node, Value, result_type, walk

TO_TEXT = frozenset({"concat", "concat_ws", "format"})
TO_JSON = frozenset(
    {
        "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "to_json", "to_jsonb", "json_build_object",
        "jsonb_build_object", "json_build_array", "jsonb_build_array", "array_to_json",
        # What JSON_ARRAYAGG and JSON_OBJECTAGG call.
        *(f"{kind}_{name}" for kind in ("json", "jsonb") for name in (
            "agg_strict", "object_agg_strict", "object_agg_unique", "object_agg_unique_strict",
        )),
    }
)  # fmt: skip

# They depend on the session only by the types of the columns that the query defines, whose input
# functions are looked at.
FROM_JSON = frozenset(
    {"json_to_record", "json_to_recordset", "jsonb_to_record", "jsonb_to_recordset"}
)

_COMPARED = [
    ("date", "timestamptz"),
    ("timestamptz", "date"),
    ("timestamp", "timestamptz"),
    ("timestamptz", "timestamp"),
]
ZONED = frozenset(
    {
        "date_part", "extract", "date_trunc", "date", "time", "timetz", "timestamp", "timestamptz", "make_timestamptz",
        "timestamptz_pl_interval", "timestamptz_mi_interval", "interval_pl_timestamptz", "date_add", "date_subtract",
        "overlaps", "generate_series",
        *(f"{left}_{sign}_{right}" for left, right in _COMPARED for sign in ("lt", "le", "eq", "gt", "ge", "ne")),
    }
)  # fmt: skip

# bool, "char", name, int8, int2, int4, text, json, unknown, bpchar, varchar, numeric, uuid, jsonb,
# and arrays of some
_PLAIN = frozenset({16, 18, 19, 20, 21, 23, 25, 114, 705, 1042, 1043, 1700, 2950, 3802})
_ARRAYS = frozenset({1000, 1005, 1007, 1009, 1014, 1015, 1016, 1231, 2951})
# JSON has dates in one form only: date, time, timestamp
_DATES = frozenset({1082, 1083, 1114})
_XML = frozenset({142})


def session_dependent(tree: Value, names: dict[int, str]) -> set[int]:
    """Return the functions among `names` (by oid) that are called with arguments whose text depends
    on the session.
    """
    return {
        oid for oid, types in _calls(tree) if oid in names and not types <= _allowed(names[oid])
    }


def session_dependent_construct(tree: Value) -> str:
    """Return a construct of SQL/JSON or XML whose operands print as the session's settings say; ''
    if there is none.
    """
    for node in walk(tree):
        types = set(map(result_type, _operands(node)))
        if node.kind in ("JSONCONSTRUCTOREXPR", "JSONEXPR") and not types <= _allowed("to_json"):
            return "SQL/JSON over values of these types"
        if node.kind == "XMLEXPR" and not types <= _allowed("to_json") | _XML:
            return "XML of values of these types"
    return ""


def _operands(node: Node) -> list[Node]:
    return [
        operand
        for name in ("args", "named_args", "passing_values")
        for operand in _arguments(node.fields.get(name))
    ]


def _allowed(name: str) -> frozenset[int]:
    return _PLAIN | _ARRAYS | (_DATES if name in TO_JSON else frozenset())


def _calls(tree: Value) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield each call of a function or an aggregate: its oid and the types of its arguments."""
    for node in walk(tree):
        oids = [node.number(field) for field in ("funcid", "aggfnoid", "winfnoid")]
        if called := next(filter(None, oids), 0):
            yield called, frozenset(map(result_type, _arguments(node.fields.get("args"))))


def _arguments(args: Value | None) -> list[Node]:
    listed = args if isinstance(args, list) else [args]
    nodes = [value for value in listed if isinstance(value, Node)]
    # An aggregate has its arguments in entries.
    values = [node.fields.get("expr") if node.kind == "TARGETENTRY" else node for node in nodes]
    return [value for value in values if isinstance(value, Node)]
