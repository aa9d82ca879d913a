"""Ways to break the engine on purpose, each with the stream tables that must not survive it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Sabotage = Callable[[pytest.MonkeyPatch], None]


class Sabotages(dict[str, tuple[Sabotage, tuple[str, ...]]]):
    """The sabotages of a file by their names."""

    def breaks(self, *tables: str) -> Callable[[Sabotage], Sabotage]:
        """Name the stream tables that must not survive a sabotage."""

        def add(sabotage: Sabotage) -> Sabotage:
            self[sabotage.__name__] = (sabotage, tables)
            return sabotage

        return add
