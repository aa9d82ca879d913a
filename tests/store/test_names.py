"""The names of what a stream table stores beside itself."""

from __future__ import annotations

from psycopg import sql

from millstream.algebra.relation import Scan
from millstream.algebra.table import BlockRows
from millstream.store.names import BlockNames, PlanningNames, from_item, row_hash
from millstream.testing.planning_server import table

NAMES = BlockNames(7, "public", 'Odd "name"', shapes=("aa", "bb"))


def staging_tables(names: BlockNames, terms: int = 0) -> set[str]:
    return {name.as_string() for name in names.staging(terms)}


def test_the_target_is_quoted() -> None:
    assert NAMES.target.as_string() == '"public"."Odd ""name"""'


def test_each_block_has_relations_of_its_own() -> None:
    assert NAMES.state == sql.Identifier("millstream_state", "state_7_0")
    assert NAMES.at(1).state == sql.Identifier("millstream_state", "state_7_1")


def test_staging_tables_are_shared_by_shape_and_not_by_stream_table() -> None:
    other = BlockNames(8, "public", "other", shapes=("aa", "bb"))
    assert other.staging() == NAMES.staging()
    assert not staging_tables(NAMES) & staging_tables(NAMES.at(1))


def test_two_blocks_of_one_shape_are_staged_side_by_side() -> None:
    names = BlockNames(7, "public", "t", shapes=("aa", "aa"))
    assert not staging_tables(names) & staging_tables(names.at(1))


def test_each_term_of_a_recursion_has_a_delta_of_its_own() -> None:
    staging = staging_tables(NAMES, terms=2)
    assert len(staging) == len(NAMES.staging()) + 2
    assert NAMES.of_term(1).delta.as_string() in staging - staging_tables(NAMES)


def test_an_input_is_read_from_its_table_or_from_the_rows_of_a_block() -> None:
    orders = table("orders", "id int4")
    inner = BlockRows(orders.columns, block=1, relation_name="block_1")
    assert NAMES.source(orders).as_string() == orders.relation
    assert NAMES.source(inner) == sql.Identifier("millstream_state", "block_7_1")


def test_names_while_planning_are_temporary() -> None:
    names = PlanningNames(0, "", "")
    assert all(
        name.as_string().startswith('"pg_temp".')
        for name in (names.state, names.shown, names.materialized)
    )


def test_a_from_item_has_the_alias_of_its_scan() -> None:
    scan = Scan(table("orders", "id int4"), 'my "o"')
    assert from_item(scan, NAMES.at(1).shown).as_string() == (
        '"millstream_state"."block_7_1" AS "my ""o"""'
    )


def test_a_row_is_hashed_as_a_row_so_that_columns_do_not_run_together() -> None:
    assert 'ROW("a", "b")::text' in row_hash([sql.Identifier("a"), sql.Identifier("b")]).as_string()
