"""SQL/JSON calls whose result depends on more than their operands are refused."""

from __future__ import annotations

import pytest

from millstream.algebra.dialect import parsed
from millstream.compiler.server.json_paths import check_paths
from millstream.compiler.server.plan_query import plan_query
from millstream.errors import Unsupported, Volatile
from millstream.postgres.connection import Connection


@pytest.mark.parametrize(
    "call",
    [
        "JSON_VALUE(j, '$.a' RETURNING integer)",
        "JSON_VALUE(j, '$.a' RETURNING integer NULL ON EMPTY ERROR ON ERROR)",
        "JSON_VALUE(COALESCE(j, '{}'::jsonb), '$.a' RETURNING text DEFAULT 'x' ON EMPTY)",
        "CASE WHEN ok AND (j IS NOT NULL) THEN JSON_QUERY(j, '$.a' EMPTY ARRAY ON ERROR) END",
        """JSON_EXISTS(j, '$."a"[*]?(@ > $"m")' PASSING x AS m)""",
    ],
)
def test_a_call_that_depends_on_its_operands_alone_is_accepted(call: str) -> None:
    check_paths(parsed(f"SELECT {call}"))


@pytest.mark.notyet
@pytest.mark.parametrize(
    "call",
    [
        "JSON_VALUE(j, '$.a' RETURNING integer DEFAULT 0 ON EMPTY)",
        "CASE WHEN j IS NOT NULL THEN 1 ELSE JSON_QUERY(j, '$.a' EMPTY ARRAY ON ERROR) END",
        "JSON_EXISTS(j, 'strict $.a')",
        "JSON_EXISTS(j, '$.a' TRUE ON ERROR)",
    ],
)
def test_a_null_that_may_take_the_result_of_an_earlier_row_is_refused(call: str) -> None:
    with pytest.raises(Unsupported, match="ON EMPTY or ON ERROR"):
        check_paths(parsed(f"SELECT {call}"))


@pytest.mark.parametrize("path", ["'$.a.datetime()'", "p"])
def test_a_path_that_may_read_times_is_refused(path: str) -> None:
    with pytest.raises(Volatile, match="may read times"):
        check_paths(parsed(f"SELECT JSON_EXISTS(j, {path})"))


@pytest.mark.parametrize(
    ("value", "setting"),
    [
        ("tz", "TimeZone"),
        ("iv", "IntervalStyle"),
        ("f", "extra_float_digits"),
        ("b", "bytea_output"),
    ],
)
def test_the_settings_on_which_the_text_of_values_depends_are_recorded(
    planner: Connection, value: str, setting: str
) -> None:
    if planner.info.server_version < 160000:
        pytest.skip("SQL/JSON constructors are newer")
    planned = plan_query(planner, f"SELECT id, JSON_OBJECT('v' : {value}) AS o FROM t")
    assert list(planned.settings) == [setting]


def test_the_type_of_a_value_that_is_taken_out_is_looked_at(planner: Connection) -> None:
    query = "SELECT t.id, q.v FROM t, jsonb_to_recordset(t.j) AS q (v {})"
    assert plan_query(planner, query.format("int[]")).settings == {}
    assert list(plan_query(planner, query.format("date")).settings) == ["DateStyle"]
    with pytest.raises(Volatile, match="regclassin"):
        plan_query(planner, query.format("regclass"))
