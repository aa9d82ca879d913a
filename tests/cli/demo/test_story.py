"""The chapters of the demo."""

from __future__ import annotations

from millstream.cli.demo.story import CHAPTERS

from .conftest import SIZES


def test_the_chapters_name_their_sources() -> None:
    assert all(source in SIZES for chapter in CHAPTERS for source in chapter.sources)


def test_the_statement_of_a_chapter_is_what_a_user_would_type() -> None:
    assert CHAPTERS[0].statement == (
        "SELECT millstream.create_stream_table('open_orders', $$\n"
        "    SELECT id, customer_id, status, placed_at\n    FROM orders\n    WHERE status <> 'shipped'\n"
        "$$, schedule => '500ms')"
    )
