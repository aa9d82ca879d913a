"""Positions of constructs in a query."""

from __future__ import annotations

from millstream.compiler.server.position import excerpt, find


def test_the_first_word_that_occurs_is_found_whatever_its_case() -> None:
    assert find("SELECT a FROM t tablesample system (1)", "TABLESAMPLE") == 17
    assert find("SELECT session_user", "CURRENT_USER", "SESSION_USER") == 8


def test_strings_and_comments_are_not_searched() -> None:
    assert find("SELECT 'FOR' /* FOR */ FROM t", "FOR") is None


def test_an_excerpt_marks_the_line_of_the_position() -> None:
    query = "SELECT a\nFROM t FOR UPDATE"
    assert excerpt(query, find(query, "FOR")) == "Line 2: FROM t  --> FOR UPDATE"
    assert excerpt(query, None) == ""
