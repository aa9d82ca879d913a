"""Values are printed and read by their types' own functions; `test_wire.py` shows it against a
server.
"""

from __future__ import annotations

from millstream.algebra.text_io import input_sql, output_sql, staged_sql, unstaged_sql
from millstream.algebra.types import PgType

INTEGER = PgType(23, "integer", "int4")
MOOD = PgType(9001, "shop.mood", "mood", kind="enum", output="pg_catalog.enum_out")
TEMPER = PgType(
    9002, "shop.temper", "mood", kind="enum", output="pg_catalog.enum_out", underlying="shop.mood"
)
POSITIVE = PgType(9003, "shop.positive", "int4", underlying="integer")
PAIR = PgType(9004, "shop.pair", "pair", kind="composite", output="pg_catalog.record_out")


def test_a_built_in_type_is_cast_and_staged_as_it_is() -> None:
    assert output_sql("x", INTEGER) == "(x)::text"
    assert input_sql("x", INTEGER) == "(x)::integer"
    assert staged_sql("x", INTEGER) == unstaged_sql("x", INTEGER) == "x"


def test_a_user_defined_type_is_never_cast_to_text() -> None:
    assert output_sql("x", MOOD) == "pg_catalog.textin(pg_catalog.enum_out(x))"
    assert "::" not in input_sql("x", MOOD)
    assert staged_sql("x", MOOD) == output_sql("x", MOOD)


def test_an_output_function_gets_the_type_underneath_a_domain() -> None:
    assert output_sql("x", TEMPER) == "pg_catalog.textin(pg_catalog.enum_out((x)::shop.mood))"


def test_a_domain_is_staged_as_the_type_underneath_and_comes_back_as_itself() -> None:
    assert staged_sql("x", POSITIVE) == "(x)::integer"
    assert unstaged_sql("x", POSITIVE) == "(x)::shop.positive"


def test_only_an_enum_is_short_enough_to_be_read_through_jsonb() -> None:
    assert "jsonb_to_record" in input_sql("x", MOOD)
    assert "pg_catalog.json_to_record" in input_sql("x", PAIR)


def test_the_blanks_of_a_bpchar_are_printed() -> None:
    assert (
        output_sql("x", PgType(1042, "character(5)", "bpchar"))
        == "pg_catalog.textin(pg_catalog.bpcharout(x))"
    )
