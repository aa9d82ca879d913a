"""The position that may be acknowledged to the server: the minimum of what each store has made durable.

    handed      rows of transactions up to here were handed to the store
    durable     all rows handed to it up to here are on disk
    marked      it was handed everything up to here: a marker, which follows all rows received before it

A store (the buffer of one source) whose rows are all durable stands at its marker, otherwise at its durable position.
So a store whose table nobody writes to advances by markers alone, and a slow store retains WAL for all. Until every
store has seen a marker, nothing is acknowledged. Without stores, the last marker is.

    received      rows of a at 20      keepalive 30          b is given nothing
    handed    a            20               20
    marked    a             -               30
              b             -               30
    stands at a             -     durable < 20 <= durable: 30
              b             -               30

Acknowledging the keepalive on arrival would let the server discard the rows at 20 before they are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Standing:
    """The positions of one store."""

    handed: int = 0
    durable: int = 0
    marked: int = 0

    @property
    def position(self) -> int:
        """The position before which all rows of the store are durable; 0 while unknown."""
        if not self.marked:
            return 0
        return max(self.marked, self.durable) if self.durable >= self.handed else self.durable


@dataclass(frozen=True)
class Ledger:
    """All stores, by source. Each method returns the ledger after the event."""

    stores: Mapping[int, Standing] = field(default_factory=dict)
    marked: int = 0
    acknowledged: int = 0
    """The server may discard WAL before this position. It never decreases."""

    @classmethod
    def starting_at(cls, cursor: int, stores: Iterable[int]) -> Ledger:
        """Return a ledger in which everything before the cursor is durable, and nothing is known after it."""
        return cls({store: Standing(cursor, cursor) for store in stores}, 0, cursor)

    def handed(self, store: int, lsn: int) -> Ledger:
        """Note that rows of a transaction ending at `lsn` were handed to the store."""
        standing = self.stores[store]
        return self._with({store: replace(standing, handed=max(standing.handed, lsn))})

    def mark(self, lsn: int) -> Ledger:
        """Note a marker, which follows everything handed so far. Ignore one that is older than the last."""
        lsn = max(lsn, self.marked)
        marked = {store: replace(standing, marked=lsn) for store, standing in self.stores.items()}
        return replace(self._with(marked), marked=lsn)._counted()

    def durable(self, store: int, lsn: int) -> Ledger:
        """Note that all rows handed to the store up to `lsn` are on disk."""
        standing = self.stores[store]
        return self._with({store: replace(standing, durable=max(standing.durable, lsn))})._counted()

    def join(self, store: int) -> Ledger:
        """Add a store, about which nothing is known before the next marker."""
        return self._with({store: self.stores.get(store, Standing())})

    def leave(self, store: int) -> Ledger:
        """Remove a store, which then no longer holds back the others."""
        return replace(self, stores={each: s for each, s in self.stores.items() if each != store})._counted()

    def _with(self, changed: Mapping[int, Standing]) -> Ledger:
        return replace(self, stores={**self.stores, **changed})

    def _counted(self) -> Ledger:
        least = min((standing.position for standing in self.stores.values()), default=self.marked)
        return replace(self, acknowledged=max(self.acknowledged, least))
