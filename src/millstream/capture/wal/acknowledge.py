"""How far the log may be let go: the least, over all stores, of what each has made durable.

    handed      rows of transactions up to here were given to the store
    durable     all that was given to it up to here is on its disk
    marked      up to here it was given everything there is: a marker, behind all rows received before it

A store that has everything it was handed stands at its marker, else at what is durable. So a store whose table nobody
writes to advances by markers alone, and one that is behind holds the log for all. Until each store has seen a marker
nothing is known, and nothing is let go. Without stores the last marker counts.

    received      rows of a at 20      keepalive 30          b is given nothing
    handed    a            20               20
    marked    a             -               30
              b             -               30
    stands at a             -     durable < 20 <= durable: 30
              b             -               30

Acknowledging the keepalive as it comes would let go of the rows at 20 while they are on their way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Standing:
    """What is known of one store."""

    handed: int = 0
    durable: int = 0
    marked: int = 0

    @property
    def position(self) -> int:
        """Nothing it will ever be given lies before this and is not durable; 0 while that is not known."""
        if not self.marked:
            return 0
        return max(self.marked, self.durable) if self.durable >= self.handed else self.durable


@dataclass(frozen=True)
class Ledger:
    """All stores, by source. Each verb gives the ledger after it."""

    stores: Mapping[int, Standing] = field(default_factory=dict)
    marked: int = 0
    acknowledged: int = 0
    """Up to here the log may be let go; it never goes back."""

    @classmethod
    def starting_at(cls, cursor: int, stores: Iterable[int]) -> Ledger:
        """All before the cursor is durable in every store; after it nothing is known yet."""
        return cls({store: Standing(cursor, cursor) for store in stores}, 0, cursor)

    def handed(self, store: int, lsn: int) -> Ledger:
        """Rows of a transaction that ends at `lsn` are on their way into the store."""
        standing = self.stores[store]
        return self._with({store: replace(standing, handed=max(standing.handed, lsn))})

    def mark(self, lsn: int) -> Ledger:
        """A marker passes, behind everything handed over so far; an older one than the last tells nothing."""
        lsn = max(lsn, self.marked)
        marked = {store: replace(standing, marked=lsn) for store, standing in self.stores.items()}
        return replace(self._with(marked), marked=lsn)._counted()

    def durable(self, store: int, lsn: int) -> Ledger:
        """All that was handed to the store up to `lsn` is on its disk."""
        standing = self.stores[store]
        return self._with({store: replace(standing, durable=max(standing.durable, lsn))})._counted()

    def join(self, store: int) -> Ledger:
        """A further store, of which nothing is known before the next marker."""
        return self._with({store: self.stores.get(store, Standing())})

    def leave(self, store: int) -> Ledger:
        """A store goes, and with it what it held up."""
        return replace(self, stores={each: s for each, s in self.stores.items() if each != store})._counted()

    def _with(self, changed: Mapping[int, Standing]) -> Ledger:
        return replace(self, stores={**self.stores, **changed})

    def _counted(self) -> Ledger:
        least = min((standing.position for standing in self.stores.values()), default=self.marked)
        return replace(self, acknowledged=max(self.acknowledged, least))
