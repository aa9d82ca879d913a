"""Load fixed SQL from `.sql` files with named blocks.

    -- due_tables --
    -- What the statement is for.
    SELECT ...;

`load(package, file)` returns the blocks of a file by name; a misspelt name fails at import.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import LiteralString, cast

_HEAD = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def load(package: str, file: str) -> dict[str, LiteralString]:
    """Load the named statements of a `.sql` file in a package."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    parts = _HEAD.split(text)
    # The text ships with the package, so it is as literal as a string in the code.
    return {
        name: cast(LiteralString, body.strip())
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
