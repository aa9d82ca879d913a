"""The boundary of the Python API: it checks arguments, and raises only MillstreamErrors.

    an argument of another type, text that no PostgreSQL text can hold    BadSetting
    an error of the server                                                by its SQLSTATE (`postgres.failures`)
    an error after Java has ended                                         JavaEnded
    anything else                                                         InternalError, with its cause

KeyboardInterrupt and SystemExit pass. A call that Python itself refuses, with a parameter that does
not exist, stays a TypeError.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import NoneType
from typing import NamedTuple, ParamSpec, TypeVar

import psycopg

from millstream.errors import BadSetting, InternalError, MillstreamError
from millstream.postgres import failures

P = ParamSpec("P")
T = TypeVar("T")


class ArgumentKind(NamedTuple):
    """The values allowed for an argument, and their description in errors."""

    types: tuple[type, ...]
    words: str


# By the annotation in the signature. Values of other types are checked where they are used.
KINDS: dict[str, ArgumentKind] = {
    "str": ArgumentKind((str,), "a text"),
    "str | None": ArgumentKind((str, NoneType), "a text or None"),
    "bool": ArgumentKind((bool,), "True or False"),
    "int": ArgumentKind((int,), "a whole number"),
    "Sequence[str]": ArgumentKind((list, tuple), "a list of texts"),
}


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function part of the Python API."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            check(name, value, KINDS.get(str(signature.parameters[name].annotation)))
        try:
            return function(*args, **kwargs)
        except MillstreamError:
            raise
        except Exception as error:
            raise translate_error(error) from error

    return called


def check(name: str, value: object, kind: ArgumentKind | None) -> None:
    """Raise BadSetting if an argument is of another kind."""
    if kind is None:
        return
    is_number = kind.types == (int,)
    if not isinstance(value, kind.types) or (is_number and isinstance(value, bool)):
        raise BadSetting.of(name, value, kind.words)
    if isinstance(value, str):
        _check_text(name, value)
    if isinstance(value, (list, tuple)):
        for part in value:
            check(name, part, KINDS["str"])


def _check_text(name: str, value: str) -> None:
    if "\0" in value:
        raise BadSetting.of(name, value, "a text without NUL characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadSetting.of(name, value, "a text without lone surrogates") from error


def translate_error(error: Exception) -> MillstreamError:
    """Return an error as a MillstreamError."""
    if isinstance(error, MillstreamError):
        return error
    if isinstance(error, psycopg.Error):
        return failures.translate_error(error)
    return InternalError.of(error)
