"""A query in the making: the dice, and what has been made so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from millstream.testing.queries.terms import Body, Columns, Item, RandomTerm
from millstream.testing.randomness import RandomTable

Choice = TypeVar("Choice")

_RECURSIVE = "WITH RECURSIVE "


@dataclass
class Maker:
    """One query under construction."""

    tables: Sequence[RandomTable]
    dice: random.Random
    draw: Callable[[Maker], Item]
    """Makes an item of FROM: a table, or a query down to the depth that is left."""
    prefix: str = ""
    depth: int = 2
    setup: list[str] = field(default_factory=list)
    ctes: dict[str, tuple[str, Columns]] = field(default_factory=dict)
    """By name: the text after AS, and the columns."""
    parts: set[str] = field(default_factory=set)
    aliases: int = 0
    clock: bool = False
    """May it ask what time it is?"""

    @property
    def cased(self) -> bool:
        return self.tables[0].cased

    def item(self) -> Item:
        return self.draw(self)

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def sometimes(self, share: float, make: Callable[[], str]) -> str:
        """Return what `make` returns, with this chance; otherwise ''."""
        return make() if self.chance(share) else ""

    def one_of(self, choices: Sequence[Choice]) -> Choice:
        return self.dice.choice(list(choices))

    def part(self, *names: str) -> str:
        """Choose one of these constructs, and note it as used."""
        name = self.dice.choice(names)
        self.parts.add(name)
        return name

    def named(self, sql: str, columns: Columns, table: RandomTable | None = None) -> Item:
        """Return an item under an alias that nothing else has."""
        self.aliases += 1
        alias = f"a{self.aliases}"
        terms = tuple(RandomTerm(f"{alias}.{name}", kind, alias) for name, kind in columns)
        return Item(f"{sql} AS {alias}", alias, terms, table)

    def table(self, table: RandomTable | None = None) -> Item:
        """Return a table as it stands."""
        table = table or self.one_of(self.tables)
        return self.named(
            table.name, [(column.name, column.kind.name) for column in table.columns], table
        )

    def listed(self, case: str, columns: Mapping[str, RandomTerm]) -> Body:
        """Return a select list, the case first."""
        shown = {**({"cid": RandomTerm(case, "int4")} if self.cased else {}), **columns}
        text = ", ".join(f"{term.sql} AS {name}" for name, term in shown.items())
        return text, [(name, term.kind) for name, term in shown.items()]

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Make items that may nest one level less."""
        self.depth -= 1
        try:
            yield
        finally:
            self.depth += 1

    def cte(self, body: str, columns: Columns) -> str:
        name = f"w{len(self.ctes) + 1}"
        how = self.part(*["WITH"] * 3, "MATERIALIZED", "NOT MATERIALIZED")
        self.ctes[name] = (f"({body})" if how == "WITH" else f"{how} ({body})", columns)
        return name

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Make a text of its own, such as a view's, which does not see the CTEs around it."""
        around, self.ctes = self.ctes, {}
        try:
            yield
        finally:
            self.ctes = around

    def whole(self, body: str) -> str:
        """Return a query with its WITH clause."""
        listed = ", ".join(f"{name} AS {text}" for name, (text, _) in self.ctes.items())
        if listed and body.startswith(_RECURSIVE):
            return f"{_RECURSIVE}{listed}, {body.removeprefix(_RECURSIVE)}"
        return f"WITH {listed} {body}" if listed else body
