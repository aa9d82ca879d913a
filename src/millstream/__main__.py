"""The program `millstream`: Ctrl-C is answered from the first moment, also while modules are
imported.

Imports take the first second. An interrupt there would end in a traceback, from wherever it happens
to be; nothing has been begun by then, so the process ends at once.
"""

import os
import signal
import sys

_PLAIN = b"interrupted: nothing was left half done\n"
_JSON = b"""{
  "error": {
    "code": "MS000",
    "message": "interrupted",
    "detail": "Nothing was left half done.",
    "hint": "",
    "facts": {}
  }
}
"""
# After Ctrl-C, as shells have it: 128 and the signal's number.
INTERRUPTED = 130


def _end(_number: int, _frame: object) -> None:
    """End the process; whatever is being imported cannot turn this into another error."""
    os.write(2, _JSON if "--json" in sys.argv else _PLAIN)
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the program."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _end)
    from millstream.cli.app import main as run

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
