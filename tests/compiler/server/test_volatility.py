"""The settings on which stable functions depend."""

from __future__ import annotations

import re

import pytest

from millstream.compiler.server import volatility
from millstream.compiler.server.node_tree import parse
from millstream.postgres import session_settings
from millstream.postgres.connection import Connection

CONCAT, TO_JSON = 3058, 3787
INT4, TIMESTAMPTZ = 23, 1184

# Functions that are refused: they depend on the catalog, on what the server does, on the role or on
# the moment.
REFUSED = re.compile(
    r"(pg_|has_|to_reg|reg\w*(in|out)\b|acl|\w*sel\b|ts_(debug|parse|token_type|typanalyze)|"
    r"\w*_typanalyze|fmgr_|inet_|txid_|row_security_active|statement_timestamp|current_|session_user|"
    r"system_user|version|getpgusername|getdatabaseencoding|\w*obj_description|col_description|"
    r"format_type|oidvectortypes|mxid_age|regclass\(|\w*_?recv\b|\w*_?send\b|\w+_to_xml|any\w*_(in|out)\b|"
    r"cstring_|\w*_transfn\b|\w*_finalfn\b|json\w*_populate_record)"
)
# Those of the clock are columns of its row. The others depend on the moment, or on the types that
# their caller names.
ALSO_REFUSED = {
    "now()", "transaction_timestamp()", "age(timestamp with time zone)",
    "age(timestamp without time zone)", "age(xid)",
    "timetz(time without time zone)", "timetz_in(cstring,oid,integer)",
    "timezone(text,time with time zone)", "timezone(time with time zone)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("function", "type_", "printed"),
    [(CONCAT, INT4, {INT4}), (TO_JSON, TIMESTAMPTZ, {TIMESTAMPTZ}), (99, TIMESTAMPTZ, set())],
)
def test_the_types_of_printed_arguments(function: int, type_: int, printed: set[int]) -> None:
    tree = parse(f"({{FUNCEXPR :funcid {function} :args ({{CONST :consttype {type_}}})}})")
    assert volatility.printed_types(tree, [CONCAT, TO_JSON]) == printed


def test_json_writes_times_in_one_form() -> None:
    outputs = ["timestamptz_out", "date_out"]
    assert volatility.of_printed(outputs, json=True) == {"TimeZone"}
    assert volatility.of_printed(outputs, json=False) == {"TimeZone", "DateStyle"}


def test_every_stable_function_of_the_server_is_decided(conn: Connection) -> None:
    rows = conn.execute(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE provolatile = 's'"
        " AND pronamespace = 'pg_catalog'::regnamespace"
    ).fetchall()
    plain = [row[0].replace('"', "").removeprefix("pg_catalog.") for row in rows]
    known = [name for name in plain if _is_listed(name)]
    refused = [name for name in plain if REFUSED.match(name) or name in ALSO_REFUSED]
    assert not set(known) & set(refused)
    assert set(plain) - set(known) == set(refused)
    assert len(known) > 100


def _is_listed(name: str) -> bool:
    is_examined = name.split("(")[0] in volatility.PRINTING | volatility.FROM_JSON
    return is_examined or volatility.settings_of(name) is not None


def test_the_settings_of_functions_can_be_recorded() -> None:
    named = set().union(*volatility.SETTINGS.values()) | volatility.PRINTED
    assert named <= set(session_settings.NAMES)
