"""Every error of the Python API is a MillstreamError: each public function is called with bad input
of each kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream, MillstreamError, Settings
from millstream.errors import BadSetting, Closed, InternalError, ServerError
from millstream.service import api_boundary
from millstream.service.monitoring import status

pytestmark = pytest.mark.spark

# Values that are wrong for any parameter, or wrong by their kind.
BAD: dict[str, object] = {
    "None": None,
    "number": 5,
    "negative": -1,
    "huge": 1 << 70,
    "float": 1.5,
    "bytes": b"x",
    "list": ["x"],
    "object": object(),
    "empty": "",
    "blank": "  ",
    "NUL": "a\0b",
    "surrogate": "\ud800",
    "quote": "a'b\"c",
    "unclosed": '"abc',
    "dots": "a.b.c.d",
    "long": "x" * 5000,
    "no name": "nosuch",
    "injection": "x; DROP TABLE t",
    "percent": "%s %(x)s {}",
    "emoji": "\N{GRINNING FACE}",
}

# Of every public method, arguments that it accepts; `st` is a stream table.
GOOD: dict[str, dict[str, object]] = {
    "create_stream_table": {"name": "new", "query": "SELECT id FROM t", "initialize": False},
    "create_or_replace_stream_table": {
        "name": "new",
        "query": "SELECT id FROM t",
        "initialize": False,
    },
    "validate": {"query": "SELECT id FROM t"},
    "alter_stream_table": {"name": "st"},
    "drop_stream_table": {"name": "st"},
    "refresh": {"name": "st"},
    "refresh_all": {},
    "tick": {},
    "verify": {"name": "st"},
    "explain": {"name": "st"},
    "table": {"name": "st"},
    "status": {},
    "history": {"name": "st"},
    "health": {},
    "settings": {},
    "set_setting": {"name": "cdc_mode", "value": "trigger"},
    "reset_setting": {"name": "cdc_mode"},
    "events": {"name": "st"},
    "adopt": {},
    "uninstall": {},
    "close": {},
}


def methods() -> dict[str, Callable[..., Any]]:
    return {
        name: one
        for name, one in inspect.getmembers(Millstream, inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_public_method_is_called_below() -> None:
    assert set(GOOD) == set(methods())


def test_every_public_method_stands_at_the_door() -> None:
    assert [name for name, one in methods().items() if not hasattr(one, "__wrapped__")] == []


def raised(act: Callable[[], object]) -> BaseException | None:
    try:
        act()
    except Exception as error:
        return error
    return None


@pytest.fixture
def filled(ms: Millstream, database: str) -> Millstream:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    ms.create_stream_table("st", "SELECT id FROM t", schedule="1h")
    return ms


def test_bad_input_of_every_kind_raises_a_millstream_error_or_nothing(filled: Millstream) -> None:
    """A NUL in a query was psycopg's DataError, schedule=None an AttributeError, history of -1 a
    raw server error.
    """
    wrong = []
    for name, good in GOOD.items():
        if name in ("uninstall", "close"):
            continue
        act = getattr(filled, name)
        for parameter, kind in inspect.signature(act).parameters.items():
            for what, value in BAD.items():
                if kind.default is value or (name == "drop_stream_table" and value is True):
                    continue
                error = raised(lambda given={**good, parameter: value}, act=act: act(**given))  # type: ignore[misc]  # a lambda with a default
                if error is not None and (
                    not isinstance(error, MillstreamError) or isinstance(error, InternalError)
                ):
                    wrong.append(f"{name}({parameter}={what}): {type(error).__name__}: {error}")
                elif isinstance(error, BadSetting):
                    assert error.hint, f"{name}({parameter}={what})"
        # What was made by mistake goes, so that the next call meets the same.
        if raised(lambda: filled.app.named("new")) is None:
            filled.drop_stream_table("new")
    assert wrong == []
    assert filled.refresh("st").action == "NO_DATA"


@pytest.mark.parametrize(
    "value", [None, 5, b"x", ["1m"], object()], ids=lambda value: type(value).__name__
)
def test_a_schedule_that_is_no_text_is_refused(filled: Millstream, value: Any) -> None:
    with pytest.raises(BadSetting, match="schedule"):
        filled.create_stream_table("new", "SELECT id FROM t", schedule=value)


@pytest.mark.parametrize(
    "schedule", ["-1s", "0s", "0", "1 fortnight", "1.5s", "1s2", "∞", "1e9s", "９s", "100ms"]
)
def test_a_schedule_that_makes_no_sense_is_refused_with_what_does(
    filled: Millstream, schedule: str
) -> None:
    with pytest.raises(BadSetting) as caught:
        filled.create_stream_table("new", "SELECT id FROM t", schedule=schedule)
    assert "500ms" in caught.value.hint or "200ms" in caught.value.hint
    with pytest.raises(BadSetting):
        filled.alter_stream_table("st", schedule=schedule)


def test_bad_arguments_of_connect_raise_a_millstream_error(
    database: str, spark: SparkSession
) -> None:
    wrong = []
    places = {
        "dsn": [
            *BAD.values(),
            "postgresql://[",
            "host=",
            "port=x",
            "nonsense=1",
            "postgresql://h:99999999/d",
        ]
    }
    places |= {name: [5, "x", {}, object()] for name in ("spark", "settings", "progress")}
    for parameter, values in places.items():
        for value in values:
            given = {"dsn": database, "spark": spark, parameter: value}
            error = raised(lambda given=given: millstream.connect(**given).close())  # type: ignore[misc]  # a lambda with a default
            if not isinstance(error, MillstreamError) or isinstance(error, InternalError):
                wrong.append(f"connect({parameter}={value!r}): {type(error).__name__}: {error}")
    # An empty connection string means libpq's defaults, which may lead to a server.
    assert [one for one in wrong if "''" not in one and "'  '" not in one] == []


def test_a_bad_directory_of_an_embedded_server_raises_a_millstream_error() -> None:
    for bindir in ("/nonesuch", "/etc/passwd"):
        with (
            pytest.raises(MillstreamError, match="did not start"),
            millstream.embedded(bindir=bindir),
        ):
            pass


def test_a_connection_that_was_closed_says_so(database: str, spark: SparkSession) -> None:
    """It was told as a lost connection, with the hint to try again, which could not help."""
    connected = millstream.connect(database, spark=spark)
    connected.close()
    for name, good in GOOD.items():
        if name in ("close", "events"):
            continue
        with pytest.raises(Closed, match="has been closed"):
            getattr(connected, name)(**good)
    connected.close()


def test_an_unexpected_error_is_a_millstream_error_with_its_cause(
    filled: Millstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trouble, kind in (
        (KeyError("x"), InternalError),
        (RecursionError("too deep"), InternalError),
        (MemoryError(), InternalError),
        (psycopg.ProgrammingError("x"), ServerError),
    ):

        def fails(_app: object, trouble: Exception = trouble) -> None:
            raise trouble

        monkeypatch.setattr(status, "status", fails)
        with pytest.raises(kind) as caught:
            filled.status()
        assert caught.value.__cause__ is trouble
        assert type(trouble).__name__ in caught.value.detail or kind is ServerError


def test_a_parameter_that_does_not_exist_stays_a_type_error(filled: Millstream) -> None:
    with pytest.raises(TypeError, match="unexpected"):
        filled.refresh("st", nosuch=1)  # type: ignore[call-arg]  # that is the point


def test_interrupts_pass_the_door() -> None:
    @api_boundary.public
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_settings_are_no_exception() -> None:
    for bad in BAD.values():
        for name in Settings.model_fields:
            error = raised(lambda given={name: bad}: Settings(**given))  # type: ignore[misc]  # a lambda with a default
            assert error is None or isinstance(error, BadSetting), f"{name}={bad!r}: {error!r}"
