"""The base of every error that Millstream raises on purpose."""

from __future__ import annotations

import re
import shlex
from typing import Any


class MillstreamError(Exception):
    """The base of every error that Millstream raises on purpose."""

    code = "MS000"
    retryable = False
    waits = False
    """True if the stream table waits in status ERROR until the cause is gone, and then resumes
    without help.
    """
    skips = False
    """True if nothing is wrong with the stream table: another process, a lock or another stream
    table is in the way.
    """

    # Facts have any type: they are the values that the message was built from.
    def __init__(self, message: str, *, detail: str = "", hint: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        # Only reached when normal lookup fails; guard the names pickle asks for before __init__
        # ran.
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (type(self), self.message, self.detail, self.hint, self.facts))

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.code}]"]
        lines += [f"DETAIL: {self.detail}"] if self.detail else []
        lines += [f"HINT: {self.hint}"] if self.hint else []
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        facts = {
            name: value if isinstance(value, int | float | bool) else str(value)
            for name, value in self.facts.items()
        }
        return {
            "code": self.code,
            "message": self.message,
            "detail": self.detail,
            "hint": self.hint,
            "facts": facts,
        }


def of_code(code: str) -> type[MillstreamError]:
    """Return the class of errors that has this code; the base of all, if there is none.

    >>> of_code("MS202").__name__, of_code("42P01").__name__
    ('NoSuchStreamTable', 'MillstreamError')
    """
    waiting: list[type[MillstreamError]] = [MillstreamError]
    while waiting:
        kind = waiting.pop()
        if kind.code == code:
            return kind
        waiting += kind.__subclasses__()
    return MillstreamError


def typed(*parts: str) -> str:
    """Return a name as a user types it in a command: quoted for SQL, then for the shell, if either
    is needed.

    >>> print(typed("shop", "totals"), typed("Big 'Totals'"))
    shop.totals '"Big '"'"'Totals'"'"'"'
    """
    if all(re.fullmatch(r"[a-z_][a-z0-9_]*", part) for part in parts):
        return ".".join(parts)
    return shlex.quote(".".join('"{}"'.format(part.replace('"', '""')) for part in parts))


def _unpickle(
    kind: type[MillstreamError], message: str, detail: str, hint: str, facts: dict[str, Any]
) -> MillstreamError:
    return kind(message, detail=detail, hint=hint, **facts)
