"""Plan a query: ask PostgreSQL what it means, check it, cut it into blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot.errors import SqlglotError

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Relation, Scan
from millstream.algebra.table import Table, quoted
from millstream.algebra.types import PgType
from millstream.catalog import grounds, queries, relations, stream_tables
from millstream.catalog.grounds import Grounds
from millstream.catalog.queries import Canonical
from millstream.catalog.row_key import RowKey
from millstream.errors import BadQuery, BadSource, Unsupported, Volatile
from millstream.plan.block import Block, Key
from millstream.plan.cut import cut
from millstream.plan.place import Typist
from millstream.sql import check, position
from millstream.sql.build import build
from millstream.store.connection import Connection


@dataclass(frozen=True)
class Planned:
    """A query, understood."""

    query: str
    canonical: Canonical
    relation: Relation
    blocks: tuple[Block, ...]
    grounds: Grounds
    """What the plan stands on, as it was before the plan was made."""

    @property
    def block(self) -> Block:
        """The block whose output is the stream table."""
        return self.blocks[-1]

    def sources(self) -> dict[int, tuple[Table, tuple[str, ...]]]:
        """Each source with the columns the query uses."""
        used = dict[int, tuple[Table, set[str]]]()
        for one in self.block.inputs():
            table = one.scan.table
            used.setdefault(table.oid, (table, set()))[1].update(one.used())
        return {oid: (table, tuple(sorted(columns))) for oid, (table, columns) in used.items()}

    def row_key(self) -> RowKey:
        """What tells the rows apart, for the catalog."""
        return RowKey(self.block.key, {oid: table.key for oid, (table, _) in self.sources().items()})

    def keyed(self, key: Key) -> Planned:
        """The same plan with another key."""
        return replace(self, blocks=(*self.blocks[:-1], replace(self.block, key=key)))


def plan_query(
    conn: Connection, query: str, *, qualified: bool = False, keys: Mapping[int, Sequence[str]] | None = None
) -> Planned:
    """The plan of a query, as the user wrote it or as its canonical text; or why it is refused, and where.

    Of a source with several keys the one in `keys` is used, as long as it is one.
    """
    with queries.rolled_back(conn):
        canonical = queries.reread(conn, query) if qualified else queries.canonical(conn, query)
        found = grounds.under(conn, canonical.text)
        _check(conn, canonical, query)
        _check_names([column.name for column in canonical.columns], query)
        try:
            relation = build(canonical.text, _Catalog(conn, query, keys or {}))
            blocks = cut(relation, canonical.columns, _typist(conn))
        except Unsupported as error:
            raise _placed(error, query) from error
    return Planned(query, canonical, relation, blocks, found)


def _check(conn: Connection, canonical: Canonical, query: str) -> None:
    check.check(canonical.tree, query)
    for function in queries.functions(conn, canonical.tree):
        _check_function(function, query)
    _check_faithful(conn, canonical)


def _check_names(names: Sequence[str], query: str) -> None:
    """Names that begin with __ms_ are ours: in a stream table, and beside a source's columns in its slice."""
    for name in names:
        if name.lower().startswith("__ms_"):
            where = position.find(query, name)
            raise Unsupported.construct(
                f'a column named "{name}"',
                reason="Names that begin with __ms_ are kept for Millstream's own columns.",
                way_round="Give the column another name.",
                position=where,
                excerpt=position.excerpt(query, where),
            )


def _check_function(function: queries.Function, query: str) -> None:
    full = function.name.split("(")[0]
    name = full.split(".")[-1].strip('"')
    where = position.find(query, name)
    # An aggregate of a user or of an extension may be called `sum` too.
    own = function.schema == "pg_catalog"
    if function.aggregate and not (own and name in check.SUPPORTED_AGGREGATES):
        raise Unsupported.construct(
            f"the aggregate {full}",
            reason="Millstream does not maintain it yet.",
            way_round="Use count, sum, avg, min or max, or aggregate in a view over the stream table.",
            position=where,
            excerpt=position.excerpt(query, where),
        )
    if function.volatility != "immutable":
        raise Volatile.function(function.name, function.volatility, where, position.excerpt(query, where))


def _check_faithful(conn: Connection, canonical: Canonical) -> None:
    """Our parser must read the query as the server does: print what it read, and let the server compare.

    Its operators too: NULLIF or USING over a type of an extension means another one where the path is ours.
    """
    try:
        again = queries.reread(conn, printed(parsed(canonical.text)))
        same = again.text == canonical.text and again.operators == canonical.operators
    except (BadQuery, SqlglotError):
        same = False
    if not same:
        raise Unsupported.construct(
            "this query's syntax",
            reason="It could not be read without changing its meaning.",
            way_round="Write the unusual parts in a plainer way, and please report the query.",
        )


def _placed(error: Unsupported, query: str) -> Unsupported:
    """Find the place in the query of a refusal that came from the planner."""
    if error.facts.get("position"):
        return error
    words = re.findall(r'"(\w+)"', error.message) + re.findall(r"\b(sum|avg|min|max|count)\b", error.message)
    where = position.find(query, *words)
    again = Unsupported(error.message, detail=error.detail, hint=error.hint, **{**error.facts, "position": where})
    again.detail = " ".join(part for part in (error.detail, position.excerpt(query, where)) if part)
    return again


def _typist(conn: Connection) -> Typist:
    def types(expressions: Sequence[Expr], scans: Sequence[Scan]) -> tuple[PgType, ...]:
        columns = ", ".join(f"{one.sql} AS x{number}" for number, one in enumerate(expressions))
        tables = ", ".join(f"{scan.table.qualified} AS {quoted(scan.alias)}" for scan in scans)
        return tuple(column.type for column in queries.columns_of(conn, f"SELECT {columns} FROM {tables}"))

    return types


class _Catalog:
    """Answers the builder's questions."""

    def __init__(self, conn: Connection, query: str, keys: Mapping[int, Sequence[str]]) -> None:
        self.conn = conn
        self.query = query
        self.keys = keys

    def table(self, schema: str, name: str) -> Table | str:
        schema = schema or queries.implicit_schema(self.conn, name)
        oid, kind = queries.relation_kinds(self.conn, [(schema, name)])[schema, name]
        if kind == "v":
            view = queries.view(self.conn, oid)
            _check(self.conn, view, self.query)
            return view.text
        where = position.find(self.query, name)
        relations.check_source(self.conn, oid, where)
        if any(one.relid == oid for one in stream_tables.every(self.conn)):
            raise BadSource.of(
                name, "It is a stream table; stream tables over stream tables are not kept yet.",
                "Write its query in place of its name.", where,
            )  # fmt: skip
        table = relations.table(self.conn, oid, self.keys.get(oid, ()))
        _check_names([column.name for column in table.columns], self.query)
        return table

    def types(self, select: str) -> tuple[PgType, ...]:
        return tuple(column.type for column in queries.columns_of(self.conn, select))
