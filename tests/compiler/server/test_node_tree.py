"""The text of pg_node_tree becomes nodes."""

from __future__ import annotations

import pytest

from millstream.compiler.server.node_tree import Node, converted_types, parse, result_type, walk


def kinds(text: str) -> list[str]:
    return [node.kind for node in walk(parse(text))]


def node_of(text: str) -> Node:
    node = parse(text)
    assert isinstance(node, Node)
    return node


def test_nodes_are_walked_from_the_top_and_from_the_left() -> None:
    assert kinds("({A :x {B :y {C}} :z ({D} {E})} {F})") == ["A", "B", "C", "D", "E", "F"]


def test_a_field_of_one_word_is_the_word_and_one_of_several_a_list() -> None:
    node = node_of("{A :one 1 :several 4 [ 1 0 0 0 ] :none <> :listed (o 1 2)}")
    assert node.word("one") == "1"
    assert node.fields["several"] == ["4", "[", "1", "0", "0", "0", "]"]
    assert node.word("several") == "4"
    assert node.word("none") == ""
    assert node.fields["listed"] == ["o", "1", "2"]


def test_numbers_and_flags_are_0_and_false_where_they_are_absent() -> None:
    node = node_of("{A :n -7 :yes true :no false :word x}")
    assert [node.number(name) for name in ("n", "word", "absent")] == [-7, 0, 0]
    assert [node.flag(name) for name in ("yes", "no", "absent")] == [True, False, False]


def test_a_field_is_filled_unless_it_is_empty() -> None:
    node = node_of("{A :none <> :empty () :some ({B}) :word x}")
    assert [node.filled(name) for name in ("none", "empty", "some", "word", "absent")] == [
        False, False, True, True, False,
    ]  # fmt: skip


def test_brackets_in_quotes_or_behind_a_backslash_are_text() -> None:
    assert kinds('{A :name "{B (" :other x\\}\\) :inner {C}}') == ["A", "C"]


def test_a_tree_of_ten_thousand_levels_is_parsed_and_walked() -> None:
    depth = 10_000
    assert len(kinds("{A :x " * depth + "{B}" + "}" * depth)) == depth + 1


@pytest.mark.parametrize(
    ("text", "oid"),
    [
        ("{VAR :vartype 23}", 23),
        ("{FUNCEXPR :funcresulttype 25}", 25),
        ("{BOOLEXPR :boolop and}", 16),
        ("{QUERY}", 0),
    ],
)
def test_the_type_of_an_expression_is_in_the_field_of_its_kind(text: str, oid: int) -> None:
    assert result_type(node_of(text)) == oid


def test_casts_convert_from_and_to_a_type_and_plain_calls_convert_nothing() -> None:
    cast = "{FUNCEXPR :funcresulttype 25 :funcformat 2 :args ({VAR :vartype 23})}"
    call = "{FUNCEXPR :funcresulttype 20 :funcformat 0 :args ({VAR :vartype 701})}"
    assert converted_types(parse(f"({cast} {call})")) == {23, 25}
    assert converted_types(
        parse("{COERCEVIAIO :resulttype 1043 :arg {CONST :consttype 3802}}")
    ) == {1043, 3802}
