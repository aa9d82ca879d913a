"""Random queries over random tables: the SQL that stream tables accept today.

    scan, filter, project, immutable expressions          keys that can be derived, and not
    inner, cross, theta and self joins of two to four     subqueries in FROM, views, CTEs used once or twice
    UNION ALL, also below a join and below GROUP BY       GROUP BY, HAVING, global aggregates, FILTER

A query over a cased schema joins and groups by `cid` everywhere, and shows it. A generator asks the dice only,
so a seed gives the same queries for ever. What PostgreSQL would refuse is not generated; what Millstream
refuses may be, seldom.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.testing.randomness import COMPARED, KINDS, Family, RandomTable


@dataclass(frozen=True)
class Query:
    """A query, what must be created before it, and what it is made of."""

    sql: str
    setup: tuple[str, ...]
    parts: frozenset[str]


@dataclass(frozen=True)
class Term:
    """A typed expression over the FROM clause."""

    sql: str
    kind: str
    """A name of `KINDS`; a computed value has the kind that its type comes closest to."""
    alias: str = ""
    """The one FROM item it is over."""

    @property
    def family(self) -> Family:
        return KINDS[self.kind].family


@dataclass(frozen=True)
class Item:
    """An item of a FROM clause: its text, its alias, its columns."""

    sql: str
    alias: str
    columns: tuple[Term, ...]


@dataclass
class Queries:
    """A generator of queries over some tables."""

    tables: Sequence[RandomTable]
    dice: random.Random
    prefix: str = ""
    """Put before the names of views, so that generators do not meet."""
    views: int = 0
    setup: list[str] = field(default_factory=list)
    ctes: list[str] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    aliases: int = 0

    @property
    def cased(self) -> bool:
        return self.tables[0].cased

    def next(self) -> Query:
        """Another query."""
        self.setup, self.ctes, self.parts, self.aliases = [], [], set(), 0
        body = self._one_of(("plain", 4), ("grouped", 5), ("union", 2))()
        with_ = f"WITH {', '.join(self.ctes)} " if self.ctes else ""
        return Query(with_ + body, tuple(self.setup), frozenset(self.parts))

    def _one_of(self, *choices: tuple[str, int]) -> Callable[[], str]:
        names = [name for name, weight in choices for _ in range(weight)]
        name = self.dice.choice(names)
        self.parts.add(name)
        return {"plain": self._plain, "grouped": self._grouped, "union": self._union}[name]

    # -- SELECT ------------------------------------------------------------------------------

    def _plain(self) -> str:
        source = self._from()
        terms = self._columns(source)
        if self._chance(0.5):
            self.parts.add("ids")
            terms = [t for t in source.terms if t.sql.endswith(".id")] + terms
        if len(source.items) > 1 and self._chance(0.5):
            terms.append(self._across(source))
        if self._chance(0.15):
            terms.append(Term("'fixed'::text", "text"))
        return f"SELECT {self._named(source, terms)} {source.text(self._where(source))}"

    def _grouped(self) -> str:
        source = self._from()
        keys = self._keys(source)
        case = [source.case] if source.case else []
        shown = [key for key in keys if self._chance(0.85)]
        measures = [self._measure(source) for _ in range(self.dice.randint(0 if keys else 1, 3))]
        outputs = [*case, *(key.sql for key in shown), *measures] or ["count(*)"]
        listed = ", ".join(f"{output} AS o{place}" for place, output in enumerate(outputs, 1))
        group = ", ".join([*case, *(key.sql for key in keys)])
        if not group:
            self.parts.add("global")
        text = f"SELECT {listed} {source.text(self._where(source))}{f' GROUP BY {group}' if group else ''}"
        return text + self._having(source)

    def _union(self) -> str:
        kinds = [self.dice.choice(["int4", "money2", "numeric", "text", "date"]) for _ in range(2)]
        return " UNION ALL ".join(self._union_part(kinds) for _ in range(self.dice.randint(2, 3)))

    def _union_part(self, kinds: Sequence[str]) -> str:
        source = self._from(most=2)
        terms = [self._of_family(source, KINDS[kind].family, kind) for kind in kinds]
        return f"SELECT {self._named(source, terms)} {source.text(self._where(source))}"

    def _named(self, source: _From, terms: Sequence[Term]) -> str:
        outputs = [*([source.case] if source.case else []), *(term.sql for term in terms)]
        return ", ".join(f"{output} AS o{place}" for place, output in enumerate(outputs, 1))

    def _columns(self, source: _From) -> list[Term]:
        free = [term for term in source.terms if not term.sql.endswith(".cid")]
        chosen = self.dice.sample(free, min(len(free), self.dice.randint(1, 4)))
        return [self._made(term) if self._chance(0.4) else term for term in chosen]

    # -- FROM --------------------------------------------------------------------------------

    def _from(self, most: int = 4) -> _From:
        number = min(most, self.dice.choice([1, 1, 2, 2, 2, 3, 3, 4]))
        items = [self._item() for _ in range(number)]
        if number > 1 and self._chance(0.15) and not self.ctes:
            items[:2] = self._twice()
        self.parts.add(f"{number} tables")
        texts, conditions = [items[0].sql], list[str]()
        commas = self._chance(0.3)
        for place, item in enumerate(items[1:], 1):
            condition = self._tie(self.dice.choice(items[:place]), item)
            if place == 1 and not commas and self._chance(0.1):
                self.parts.add("using")
                texts.append(f" JOIN {item.sql} USING ({'cid, ' if self.cased else ''}j)")
            elif condition and not commas and self._chance(0.8):
                texts.append(f" JOIN {item.sql} ON {condition}")
            else:
                texts.append(f"{',' if commas else ' CROSS JOIN'} {item.sql}")
                conditions.append(condition)
        return _From("".join(texts), tuple(items), tuple(filter(None, conditions)))

    def _tie(self, one: Item, other: Item) -> str:
        """The condition that ties an item to one before it; always by case, where there are cases."""
        ties = [f"{one.alias}.cid = {other.alias}.cid"] if self.cased else []
        how = self.dice.choice(["equal", "equal", "equal", "two", "theta", "mixed", "case only"])
        self.parts.add(how)
        if how in ("equal", "two", "mixed"):
            ties.append(self._comparison(one, other, "="))
        if how == "two":
            ties.append(self._comparison(one, other, "="))
        if how in ("theta", "mixed"):
            ties.append(self._comparison(one, other, self.dice.choice(["<", "<=", ">", "<>", "IS DISTINCT FROM"])))
        return " AND ".join(ties)

    def _comparison(self, one: Item, other: Item, operator: str) -> str:
        if self._chance(0.6):
            return f"{one.alias}.{self.dice.choice('jh')} {operator} {other.alias}.{self.dice.choice('jh')}"
        pairs = [(a, b) for a in one.columns for b in other.columns if _comparable(a, b, operator)]
        left, right = self.dice.choice(pairs)
        if left.family == "int" and self._chance(0.3):
            return f"{left.sql} + 1 {operator} {right.sql}"
        return f"{left.sql} {operator} {right.sql}"

    def _item(self) -> Item:
        table = self.dice.choice(list(self.tables))
        how = self.dice.choice(["table"] * 6 + ["subquery", "view", "cte", "united"])
        self.parts.add(how)
        if how == "table":
            return self._alias(table.name, [(column.name, column.kind.name) for column in table.columns])
        body, columns = self._united() if how == "united" else self._derived(table)
        if how == "view":
            self.views += 1
            name = f"{self.prefix}view_{self.views}"
            self.setup.append(f"CREATE VIEW {name} AS {body}")
            return self._alias(name, columns)
        if how == "cte":
            name = f"w{len(self.ctes) + 1}"
            self.ctes.append(f"{name} AS ({body})")
            return self._alias(name, columns)
        return self._alias(f"({body})", columns)

    def _twice(self) -> list[Item]:
        """One CTE, used two times."""
        self.parts.add("cte twice")
        body, columns = self._derived(self.dice.choice(list(self.tables)))
        name = f"w{len(self.ctes) + 1}"
        self.ctes.append(f"{name} AS ({body})")
        return [self._alias(name, columns), self._alias(name, columns)]

    def _alias(self, sql: str, columns: Sequence[tuple[str, str]]) -> Item:
        self.aliases += 1
        alias = f"a{self.aliases}"
        terms = tuple(Term(f"{alias}.{name}", kind, alias) for name, kind in columns)
        return Item(f"{sql} AS {alias}", alias, terms)

    def _derived(self, table: RandomTable) -> tuple[str, list[tuple[str, str]]]:
        """A filtered and projected table; the columns to join by keep their names."""
        terms = [Term(f"s.{column.name}", column.kind.name, "s") for column in table.columns]
        fixed = [(term, term.sql.split(".")[1]) for term in terms if term.sql in ("s.cid", "s.id", "s.j", "s.h", "s.g")]
        more = [(self._made(term), f"e{n}") for n, term in enumerate(self.dice.sample(terms[-8:], 4))]
        listed = ", ".join(f"{term.sql} AS {name}" for term, name in [*fixed, *more])
        where = f" WHERE {self._predicate(terms)}" if self._chance(0.6) else ""
        return f"SELECT {listed} FROM {table.name} AS s{where}", [(name, term.kind) for term, name in [*fixed, *more]]

    def _united(self) -> tuple[str, list[tuple[str, str]]]:
        """A UNION ALL of two tables, to stand below a join or a GROUP BY."""
        tables = [self.dice.choice(list(self.tables)) for _ in range(2)]
        names = [*(["cid"] if self.cased else []), "id", "j", "g"]
        parts = [
            f"SELECT {', '.join(f's.{name}' for name in names)}, s.h::bigint AS h, {self._any_numeric(table)} AS n"
            f" FROM {table.name} AS s"
            + (f" WHERE {self._predicate(_terms_of(table, 's'))}" if self._chance(0.4) else "")
            for table in tables
        ]
        kinds = {"cid": "int4", "id": "int4", "j": "int4", "g": "text", "h": "int8", "n": "numeric"}
        return " UNION ALL ".join(parts), [(name, kinds[name]) for name in [*names, "h", "n"]]

    def _any_numeric(self, table: RandomTable) -> str:
        found = [column.name for column in table.columns if column.kind.family == "numeric"]
        return f"s.{self.dice.choice(found)}" if found else "s.j::numeric"

    # -- WHERE, HAVING -----------------------------------------------------------------------

    def _where(self, source: _From) -> str:
        conditions = []
        if self._chance(0.5):
            item = self.dice.choice(source.items)
            conditions.append(self._predicate(list(item.columns)))
        if len(source.items) > 1 and self._chance(0.25):
            one, other = self.dice.sample(list(source.items), 2)
            pair = self._comparison(one, other, self.dice.choice(["<", ">=", "<>", "="]))
            conditions.append(f"({pair} OR {self._predicate(list(one.columns))})")
        return " AND ".join(conditions)

    def _predicate(self, terms: Sequence[Term]) -> str:
        """A condition over one item."""
        term = self.dice.choice([term for term in terms if term.kind in COMPARED])
        value = self.dice.choice(KINDS[term.kind].values)
        literal = "'" + value.replace("'", "''") + "'"
        plain = self.dice.choice(
            [
                f"{term.sql} IS NULL",
                f"{term.sql} IS NOT NULL",
                f"{term.sql} = {literal}",
                f"{term.sql} <> {literal}",
                f"{term.sql} >= {literal}" if term.family != "bool" else f"NOT {term.sql}",
                f"coalesce({term.sql} = {literal}, true)",
            ]
        )
        if self._chance(0.2):
            return f"({plain} OR {self._predicate(terms)})"
        return f"NOT ({plain})" if self._chance(0.15) else plain

    def _having(self, source: _From) -> str:
        if not self._chance(0.3):
            return ""
        self.parts.add("having")
        term = self._of_family(source, "int", "int4")
        return " HAVING " + self.dice.choice(
            ["count(*) > 1", "count(*) < 3", f"sum({term.sql}) > 2", f"min({term.sql}) IS NOT NULL", "NOT count(*) = 2"]
        )

    # -- GROUP BY ----------------------------------------------------------------------------

    def _keys(self, source: _From) -> list[Term]:
        terms = [term for term in source.terms if term.kind in COMPARED and not term.sql.endswith(".cid")]
        keys = list[Term]()
        for _ in range(self.dice.choice([0, 1, 1, 1, 2])):
            term = self.dice.choice(terms)
            keys.append(self._made(term, key=True) if self._chance(0.3) else term)
        if len(source.items) > 1 and self._chance(0.15):
            keys.append(self._alternative(source))
        return list(dict.fromkeys(keys))

    def _alternative(self, source: _From) -> Term:
        """A key that is the one item's value or the other's."""
        one, other = self.dice.sample(list(source.items), 2)
        pairs = [(a, b) for a in one.columns for b in other.columns if a.kind == b.kind and a.kind in COMPARED]
        left, right = self.dice.choice(pairs)
        self.parts.add("key across")
        return Term(f"coalesce({left.sql}, {right.sql})", left.kind)

    def _measure(self, source: _From) -> str:
        function = self.dice.choice(["count(*)", "count", "sum", "sum", "avg", "min", "max", "spread"])
        self.parts.add(function)
        if function == "count(*)":
            return f"count(*){self._filter(source)}"
        if function == "count":
            return f"count({self.dice.choice(source.terms).sql}){self._filter(source)}"
        if function in ("min", "max"):
            return f"{function}({self._extreme(source).sql}){self._filter(source)}"
        if function == "spread":
            term = self._of_family(source, "int", "int4").sql
            return f"max({term}) - min({term}) + count(*)"
        text = f"{function}({self._number(source).sql}){self._filter(source)}"
        return self.dice.choice([text, text, text, f"coalesce({text}, 0)", f"{text} > 1"])

    def _filter(self, source: _From) -> str:
        if not self._chance(0.25):
            return ""
        self.parts.add("filter clause")
        items = list(source.items)
        if len(items) > 1 and self._chance(0.3):
            one, other = self.dice.sample(items, 2)
            return f" FILTER (WHERE {self._comparison(one, other, '>')})"
        return f" FILTER (WHERE {self._predicate(list(self.dice.choice(items).columns))})"

    def _extreme(self, source: _From) -> Term:
        terms = [term for term in source.terms if term.kind in COMPARED - {"bool", "uuid"}]
        if len(source.items) > 1 and self._chance(0.15):
            self.parts.add("extreme across")
            return self._across_int(source)
        term = self.dice.choice(terms)
        return self._made(term) if self._chance(0.2) else term

    def _number(self, source: _From) -> Term:
        numbers = [term for term in source.terms if term.family in ("int", "numeric", "float")]
        if len(source.items) > 1 and self._chance(0.35):
            self.parts.add("number across")
            return self._across_int(source) if self._chance(0.6) else self._product(source)
        term = self.dice.choice(numbers)
        return self._made(term) if self._chance(0.3) else term

    # -- expressions -------------------------------------------------------------------------

    def _made(self, term: Term, *, key: bool = False) -> Term:
        """An immutable expression over the term; of the same kind, or nearly."""
        x, wide = term.sql, "int8" if term.kind == "int8" else "int4"
        choices: dict[str, list[tuple[str, str]]] = {
            "int": [(f"{x} + 1", wide), (f"abs({x})", term.kind), (f"{x} % 3", wide),
                    (f"CASE WHEN {x} > 1 THEN {x} ELSE 0 END", wide), (f"nullif({x}, 1)", term.kind)],
            "numeric": [(f"{x} * 2", "numeric"), (f"round({x}, 1)", "numeric"), (f"coalesce({x}, 0.5)", "numeric")],
            "float": [(f"{x} * 2", "float8"), (f"coalesce({x}, 4)", "float8")],
            "text": [(f"upper({x})", "text"), (f"{x} || '!'", "text"), (f"substr({x}, 1, 1)", "text"),
                     (f"coalesce({x}, 'none')", "text"), (f"length({x})", "int4")],
            "bool": [(f"NOT {x}", "bool"), (f"coalesce({x}, false)", "bool")],
            "date": [(f"{x} + 1", "date"), (f"coalesce({x}, '2001-01-01')", "date")],
            "time": [(f"{x} + '1 hour'", term.kind) if term.kind == "timestamp" else (x, term.kind)],
            "other": [(x, term.kind)],
        }  # fmt: skip
        text, kind = self.dice.choice(choices[term.family])
        if term.kind == "ctext" and kind == "text":
            kind = "ctext"
        return Term(text, kind, term.alias)

    def _of_family(self, source: _From, family: Family, kind: str) -> Term:
        """A term of that family; the value of a constant where there is none."""
        terms = [term for term in source.terms if term.family == family and not term.sql.endswith(".cid")]
        if terms and self._chance(0.9):
            term = self.dice.choice(terms)
            return self._made_within(term, family) if self._chance(0.3) else term
        value = self.dice.choice(KINDS[kind].values)
        return Term("'" + value.replace("'", "''") + f"'::{KINDS[kind].type}", kind)

    def _made_within(self, term: Term, family: Family) -> Term:
        made = self._made(term)
        return made if made.family == family else term

    def _across(self, source: _From) -> Term:
        """An expression over two items, for a select list: PostgreSQL evaluates it, whatever it is."""
        self.parts.add("expression across")
        one, other = self.dice.sample(list(source.items), 2)
        a, b = one.alias, other.alias
        return self.dice.choice(
            [
                Term(f"{a}.j + {b}.h", "int8"),
                Term(f"{a}.g || {b}.g", "text"),
                Term(f"greatest({a}.j, {b}.j)", "int4"),
                Term(f"CASE WHEN {a}.j > {b}.j THEN {a}.g WHEN {b}.h = 1 THEN 'one' ELSE {b}.g END", "text"),
                Term(f"coalesce({a}.g, {b}.g, '?')", "text"),
                Term(f"({a}.j = {b}.j AND {a}.g IS NOT NULL) OR {b}.h > 1", "bool"),
                Term(f"{a}.j BETWEEN {b}.j AND {b}.h", "bool"),
                Term(f"upper({a}.g) || lower({b}.g)", "text"),
                Term(f"{a}.j::numeric / nullif({b}.j, 0)", "numeric"),
                Term(f"nullif({a}.j, {b}.j)", "int4"),
                Term(f"ARRAY[{a}.j, {b}.j]", "ints"),
            ]
        )

    def _across_int(self, source: _From) -> Term:
        one, other = self.dice.sample(list(source.items), 2)
        a, b = one.alias, other.alias
        return self.dice.choice(
            [
                Term(f"{a}.j + {b}.j", "int4"),
                Term(f"{a}.j - {b}.j", "int4"),
                Term(f"{a}.j::bigint * {b}.h", "int8"),
                Term(f"CASE WHEN {a}.j > {b}.j THEN {a}.j ELSE {b}.j END", "int4"),
                Term(f"CASE WHEN {a}.g = {b}.g THEN 1 END", "int4"),
                Term(f"coalesce({a}.j, {b}.j, 0)", "int4"),
            ]
        )

    def _product(self, source: _From) -> Term:
        numbers = [
            (a, b)
            for one in source.items
            for other in source.items
            if one is not other
            for a in one.columns
            for b in other.columns
            if a.family == "numeric" and b.family in ("int", "numeric") and (a.kind, b.kind) != ("numeric", "numeric")
        ]
        if not numbers:
            return self._across_int(source)
        a, b = self.dice.choice(numbers)
        return Term(f"{a.sql} {self.dice.choice(['*', '+', '-'])} {b.sql}", "numeric")

    def _chance(self, share: float) -> bool:
        return self.dice.random() < share


@dataclass(frozen=True)
class _From:
    """A FROM clause with the conditions that stand in WHERE for it."""

    sql: str
    items: tuple[Item, ...]
    conditions: tuple[str, ...]

    @property
    def terms(self) -> list[Term]:
        return [term for item in self.items for term in item.columns]

    @property
    def case(self) -> str:
        """The case, where there are cases."""
        return next((term.sql for term in self.terms if term.sql.endswith(".cid")), "")

    def text(self, where: str) -> str:
        conditions = [*self.conditions, *([where] if where else [])]
        return f"FROM {self.sql}" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")


def _terms_of(table: RandomTable, alias: str) -> list[Term]:
    return [Term(f"{alias}.{column.name}", column.kind.name, alias) for column in table.columns]


def _comparable(one: Term, other: Term, operator: str) -> bool:
    """Can PostgreSQL compare them, and Spark do it the same way?"""
    if one.kind not in COMPARED or other.kind not in COMPARED:
        return False
    if operator in ("<", "<=", ">", ">=") and one.family in ("text", "other"):
        return one.kind == other.kind and one.kind in ("ctext", "uuid")
    if one.family in ("int", "numeric"):
        return other.family in ("int", "numeric")
    # Two collations in one comparison are a conflict; a date meets a timestamp only through a cast.
    return one.kind == other.kind or {one.kind, other.kind} == {"text", "varchar"}
