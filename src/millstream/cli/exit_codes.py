"""Exit codes: how a command ended, for scripts."""

from __future__ import annotations

from enum import IntEnum

from millstream.errors import BadSetting, MillstreamError


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    CHECK_FAILED = 1
    USAGE = 2
    REFUSED = 3
    SURROUNDINGS = 4
    FAILED = 5


# After Ctrl-C, as in shells: 128 plus the number of the signal.
INTERRUPTED = 130

MEANINGS: dict[Exit, str] = {
    Exit.OK: "success",
    Exit.CHECK_FAILED: "a check failed: `verify` or `demo` found a difference, `doctor` a fault",
    Exit.USAGE: "the command line, a parameter or a setting is wrong",
    Exit.REFUSED: "the query is refused (MS1xx)",
    Exit.SURROUNDINGS: "the environment: server, Java, privileges (MS0xx)",
    Exit.FAILED: "any other error of Millstream (MS2xx and above)",
}


def exit_code(error: MillstreamError) -> Exit:
    """Return the exit code of a command for an error, by the error's code."""
    if isinstance(error, BadSetting):
        return Exit.USAGE
    return {"MS0": Exit.SURROUNDINGS, "MS1": Exit.REFUSED}.get(error.code[:3], Exit.FAILED)
