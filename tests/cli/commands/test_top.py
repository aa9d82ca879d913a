"""`millstream top`: what a frame shows, and what programs get."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.conftest import AT, Line

from millstream.cli.commands import top
from millstream.cli.exit_codes import Exit
from millstream.service.monitoring.overview import Overview

TABLE: dict[str, Any] = {
    "stream_table": "shop.totals", "status": "ACTIVE", "schedule": "1s", "staleness": timedelta(minutes=5),
    "is_stale": True, "rows": 1234, "last_action": "DIFFERENTIAL", "last_reason": "CHANGED", "errors": 2,
    "error_code": "MS402",
}  # fmt: skip


SOURCE: dict[str, Any] = {
    "source": "shop.orders", "cdc_mode": "WAL", "slot_lag_seconds": 0.25, "decoder_status": "STREAMING", "alert": None,
    "reason": None,
}  # fmt: skip


REFRESH: dict[str, Any] = {
    "started_at": AT, "stream_table": "shop.totals", "action": "SKIP", "status": "FAILED", "error_code": "MS402",
    "duration_ms": 12, "rows_read": 7, "rows_inserted": 1, "rows_updated": 2, "rows_deleted": 3,
}  # fmt: skip


SLOT: dict[str, Any] = {
    "decoder_status": "STREAMING",
    "confirmed_lag_bytes": 3 << 20,
    "reconnects": 4,
}


CHECK = {
    "check_name": "stream table shop.totals",
    "status": "WARN",
    "detail": "its rows are old",
    "hint": "Look.",
}


LEADER: dict[str, Any] = {"role": "LEADER", "alive": True, "pid": 77, "host": "here"}


STANDBY: dict[str, Any] = {"role": "STANDBY", "alive": True, "pid": 78, "host": "there"}


SHOWN = Overview("shop", AT, (LEADER, STANDBY), (TABLE,), (SOURCE,), (SLOT,), (REFRESH,), (CHECK,))


def test_a_frame_shows_service_tables_capture_refreshes_and_trouble(line: Line) -> None:
    line.double.answers["overview"] = SHOWN
    ended = line("top", "--once")
    assert ended.code == Exit.OK
    for part in (
        "service: process 77 on here, 1 standby", "1 stream tables, 1 stale", "slot STREAMING, 3.0MB behind", "5 min",
        "1,234", "2 MS402", "shop.orders", "from WAL", "0.2 s", "FAILED MS402", "WARN stream table shop.totals",
    ):  # fmt: skip
        assert part in ended.out, part


def test_where_the_output_is_no_terminal_one_frame_is_printed(line: Line) -> None:
    line.double.answers["overview"] = replace(
        SHOWN, services=(), sources=(), slots=(), refreshes=(), checks=()
    )
    ended = line("top")
    assert (ended.code, ended.out.count("shop.totals")) == (Exit.OK, 1)
    assert "no service runs" in ended.out


def test_programs_get_one_document(line: Line) -> None:
    line.double.answers["overview"] = SHOWN
    shown = json.loads(line("top", "--json").out)
    assert shown["stream_tables"][0]["staleness"] == 300.0
    assert [one["role"] for one in shown["services"]] == ["LEADER", "STANDBY"]


def test_the_live_view_looks_again_and_again_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, pauses = list[int](), list[float]()

    def look() -> Overview:
        looks.append(len(looks))
        return SHOWN

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("millstream.cli.commands.top.time", SimpleNamespace(sleep=sleep))
    top._watch(look, 0.5)
    assert (looks, pauses) == ([0, 1, 2], [0.5, 0.5, 0.5])
