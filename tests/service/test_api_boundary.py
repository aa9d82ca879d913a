"""The boundary of the Python API: which arguments pass, and as what errors leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from millstream.errors import BadSetting, InternalError, MillstreamError, NoSuchStreamTable
from millstream.service.api_boundary import KINDS, check, public, translate_error


@public
def called(
    name: str, n: int = 20, full: bool = False, forget: Sequence[str] = (), error: Any = None
) -> str:
    """A function of the API; it raises what it is told to raise."""
    if error is not None:
        raise error
    return name


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("str", "totals", 5),
        ("str | None", None, b"totals"),
        ("bool", True, 1),
        ("int", 5, 5.0),
        ("int", 5, True),
        ("Sequence[str]", ["a", "b"], "ab"),
        ("Sequence[str]", ("a",), ["a", 5]),
    ],
)
def test_an_argument_of_another_type_is_refused(kind: str, good: object, bad: object) -> None:
    """True is an int for Python, and a text is a sequence of texts."""
    check("x", good, KINDS[kind])
    with pytest.raises(BadSetting, match="bad value for x"):
        check("x", bad, KINDS[kind])


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["NUL", "lone surrogate"])
def test_text_that_no_postgresql_text_can_hold_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        check("name", text, KINDS["str"])
    with pytest.raises(BadSetting):
        check("forget", ["fine", text], KINDS["Sequence[str]"])


def test_arguments_are_checked_by_their_annotations() -> None:
    assert called("totals", 5, forget=["a"]) == "totals"
    for bad in ({"n": "5"}, {"full": "yes"}, {"forget": "a"}):
        with pytest.raises(BadSetting):
            called("totals", **bad)  # type: ignore[arg-type]  # This is what is refused.


def test_every_error_raised_is_a_millstream_error_with_its_cause() -> None:
    with pytest.raises(InternalError) as caught:
        called("totals", error=ZeroDivisionError("a bug"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(NoSuchStreamTable):
        called("totals", error=NoSuchStreamTable.named("totals"))
    assert isinstance(translate_error(psycopg.errors.SyntaxError("bad")), MillstreamError)
    assert not isinstance(translate_error(psycopg.errors.SyntaxError("bad")), InternalError)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_interrupts_pass(error: BaseException) -> None:
    with pytest.raises(type(error)):
        called("totals", error=error)


def test_a_parameter_that_does_not_exist_stays_a_type_error() -> None:
    with pytest.raises(TypeError):
        called("totals", colour="red")  # type: ignore[call-arg]  # This is what is refused.
