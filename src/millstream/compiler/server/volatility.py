"""The session settings on which stable functions of the server depend.

PostgreSQL declares a function stable if its result depends on a session setting. With the setting
recorded as part of the definition, and pinned in every session that evaluates it, the function is
as good as immutable:

    date_trunc('day', t)      of a timestamptz: TimeZone
    to_tsvector(body)         default_text_search_config
    concat(a, b), to_jsonb(a) what the output functions of the arguments' types depend on
    a::text, a::date          what the output or input function of the type depends on

A function that is not listed here depends on something else: the time, the catalog, the role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from millstream.compiler.server.node_tree import Node, Value, result_type, walk

_ZONE = frozenset({"TimeZone"})
_NOTHING = frozenset[str]()
_PARSED_TIME = frozenset({"DateStyle", "TimeZone", "timezone_abbreviations"})
_SEARCH = frozenset({"default_text_search_config"})
_MONEY = frozenset({"lc_monetary"})
_PATTERN = frozenset({"lc_monetary", "lc_numeric"})
_NAMES_OF_TIME = frozenset({"lc_time"})

PRINTED = frozenset(
    {"DateStyle", "TimeZone", "IntervalStyle", "bytea_output", "lc_monetary", "extra_float_digits"}
)
"""What the text of a value of an unknown type may depend on."""

ASSUMED = PRINTED | {"default_text_search_config", "lc_numeric", "lc_time"}
"""What a user's function may depend on that is declared immutable for a stream table."""

TO_TEXT = frozenset(
    {
        "concat", "concat_ws", "format", "textanycat", "anytextcat", "quote_literal", "quote_nullable",
        "array_to_string",
    }
)  # fmt: skip
TO_JSON = frozenset(
    {
        "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "to_json", "to_jsonb", "json_build_object",
        "jsonb_build_object", "json_build_array", "jsonb_build_array", "array_to_json", "row_to_json",
        # What JSON_ARRAYAGG and JSON_OBJECTAGG call.
        *(f"{kind}_{name}" for kind in ("json", "jsonb") for name in (
            "agg_strict", "object_agg_strict", "object_agg_unique", "object_agg_unique_strict",
        )),
    }
)  # fmt: skip
PRINTING = TO_TEXT | TO_JSON
"""Functions that print their arguments."""

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
_ZONED = (
    "date_part", "extract", "date_trunc", "date", "time", "timestamp", "timestamptz",
    "timestamptz_pl_interval", "timestamptz_mi_interval", "interval_pl_timestamptz", "date_add", "date_subtract",
    "overlaps", "generate_series", "in_range",
    "jsonb_path_exists_tz", "jsonb_path_match_tz", "jsonb_path_query_array_tz", "jsonb_path_query_first_tz",
    "jsonb_path_query_tz",
    "timetz(timestamp with time zone)",
    "timezone(timestamp with time zone)", "timezone(timestamp without time zone)",
    *(f"{left}_{sign}_{right}" for left, right in _COMPARED
      for sign in ("lt", "le", "eq", "gt", "ge", "ne", "cmp")),
)  # fmt: skip
_SEARCHING = (
    "to_tsvector", "to_tsquery", "plainto_tsquery", "phraseto_tsquery", "websearch_to_tsquery", "ts_headline",
    "ts_match_tq", "ts_match_tt", "json_to_tsvector", "jsonb_to_tsvector", "get_current_ts_config",
)  # fmt: skip
# What their parts depend on is that of the functions of the parts' types.
_CONTAINERS = (
    "array_out", "record_out", "range_out", "multirange_out", "record_in", "range_in", "multirange_in", "domain_in",
)  # fmt: skip
# Of the labels of an enum, which are in the digest of its type; of the server's own conversions.
_OF_THE_CATALOG = (
    "enum_out",
    "enum_in",
    "enum_first",
    "enum_last",
    "enum_range",
    "convert",
    "convert_from",
    "convert_to",
    "length",
)

SETTINGS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_ZONED, _ZONE),
    **dict.fromkeys(_SEARCHING, _SEARCH),
    **dict.fromkeys((*_CONTAINERS, *_OF_THE_CATALOG), _NOTHING),
    **dict.fromkeys(("date_in", "timestamp_in"), frozenset({"DateStyle"})),
    **dict.fromkeys(("timestamptz_in", "time_in"), _PARSED_TIME),
    "make_timestamptz": _ZONE | {"timezone_abbreviations"},
    "interval_in": frozenset({"IntervalStyle"}),
    "array_in": frozenset({"array_nulls"}),
    **dict.fromkeys(("date_out", "timestamp_out"), frozenset({"DateStyle"})),
    "timestamptz_out": frozenset({"DateStyle", "TimeZone"}),
    "interval_out": frozenset({"IntervalStyle"}),
    **dict.fromkeys(("cash_in", "cash_out", "money", "numeric"), _MONEY),
    **dict.fromkeys(
        ("to_char(bigint,text)", "to_char(integer,text)", "to_char(numeric,text)", "to_char(real,text)",
         "to_char(double precision,text)", "to_number"), _PATTERN,
    ),
    **dict.fromkeys(
        ("to_char(timestamp without time zone,text)", "to_char(interval,text)", "to_date"), _NAMES_OF_TIME
    ),
    "to_char(timestamp with time zone,text)": _NAMES_OF_TIME | _ZONE,
    "to_timestamp": _NAMES_OF_TIME | _ZONE | {"timezone_abbreviations"},
    **dict.fromkeys(("xml", "xml_in", "xml_is_well_formed"), frozenset({"xmloption"})),
}  # fmt: skip
"""By name, or by name and arguments: the settings on which a function of the server depends."""

CALLED_IMMUTABLE: Mapping[str, frozenset[str]] = {
    "byteaout": frozenset({"bytea_output"}),
    **dict.fromkeys(("float4out", "float8out"), frozenset({"extra_float_digits"})),
}
"""Functions that PostgreSQL declares immutable although they depend on a setting."""

# JSON has times in one form only.
_IN_JSON = {"date_out": _NOTHING, "timestamp_out": _NOTHING, "timestamptz_out": _ZONE}

# record, which has no columns to ask for, and what the tree does not tell.
_UNKNOWN = frozenset({0, 2249, 2287})


def settings_of(signature: str) -> frozenset[str] | None:
    """Return the settings on which a function of the server depends; None if it is not listed.

    >>> sorted(settings_of("to_char(timestamp with time zone,text)"))
    ['TimeZone', 'lc_time']
    >>> settings_of("pg_backend_pid()")
    """
    name = signature.split("(")[0].replace('"', "")
    return SETTINGS.get(signature.replace('"', ""), SETTINGS.get(name))


def types_in_constructs(tree: Value) -> tuple[set[int], set[int]]:
    """Return the types of the operands of SQL/JSON constructs, and of XML ones."""
    json, xml = set[int](), set[int]()
    for node in walk(tree):
        types = set[int]().union(*map(types_of, _operands(node)))
        if node.kind in ("JSONCONSTRUCTOREXPR", "JSONEXPR"):
            json |= types
        if node.kind == "XMLEXPR":
            xml |= types
    return json, xml


def of_constructs(tree: Value) -> frozenset[str]:
    """Return the settings on which SQL/JSON and XML constructs depend beside their operands' texts.

    A path of JSON may have times; XML writes bytea as xmlbinary says.
    """
    kinds = {node.kind for node in walk(tree)}
    return frozenset(
        name
        for kind, name in (
            ("JSONEXPR", "TimeZone"),
            ("XMLEXPR", "TimeZone"),
            ("XMLEXPR", "xmlbinary"),
        )
        if kind in kinds
    )


def _operands(node: Node) -> list[Node]:
    return [
        operand
        for name in ("args", "named_args", "passing_values")
        for operand in _nodes(node.fields.get(name))
    ]


def of_printed(outputs: Iterable[str], *, json: bool) -> frozenset[str]:
    """Return the settings on which the text of values depends, by their types' output functions."""
    known = {**SETTINGS, **CALLED_IMMUTABLE, **(_IN_JSON if json else {})}
    return frozenset[str]().union(*(known.get(name, _NOTHING) for name in outputs))


def printed_types(tree: Value, printing: Iterable[int]) -> set[int]:
    """Return the oids of the types of the arguments with which these functions are called."""
    functions, found = set(printing), set[int]()
    for oid, arguments in _calls(tree):
        if oid in functions:
            found = found.union(*map(types_of, arguments))
    return found


def is_unknown(types: Iterable[int]) -> bool:
    """Return True if one of the types does not tell of what parts its values are."""
    return not _UNKNOWN.isdisjoint(types)


def types_of(node: Node) -> set[int]:
    """Return the type of an expression; of ROW(a, b) the types of its fields."""
    if node.kind in ("ROW", "ROWEXPR"):
        return set[int]().union(*map(types_of, _nodes(node.fields.get("args"))))
    return {result_type(node)}


def _calls(tree: Value) -> Iterator[tuple[int, list[Node]]]:
    """Yield each call of a function, an operator or an aggregate: its oid and its arguments."""
    for node in walk(tree):
        oids = [node.number(field) for field in ("funcid", "opfuncid", "aggfnoid", "winfnoid")]
        if called := next(filter(None, oids), 0):
            yield called, _nodes(node.fields.get("args"))


def _nodes(args: Value | None) -> list[Node]:
    listed = args if isinstance(args, list) else [args]
    nodes = [value for value in listed if isinstance(value, Node)]
    # An aggregate has its arguments in entries.
    values = [node.fields.get("expr") if node.kind == "TARGETENTRY" else node for node in nodes]
    return [value for value in values if isinstance(value, Node)]
