"""Write the text of a query anew after a relation or a column that it names was renamed.

PostgreSQL's views follow renames, because they are stored as trees of oids and column numbers. The
query of a stream table is stored as text. So the server is shown the old names, and renames them
itself:

    a temporary table stands in for each renamed relation, with the columns under the names that the text has
    a temporary view is made of the text, over the stand-ins
    the columns of the stand-ins get the names of today
    what the server prints of the view has them too; the stand-ins become the relations again

A relation whose former name another one has now is not followed: the text means the one of that
name, so that a table can be swapped for another. A column is followed by its number; one that was
dropped is looked for by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql
from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.catalog.definitions import query_names
from millstream.catalog.definitions.query_names import NamedRelation, Names
from millstream.compiler.server import queries
from millstream.postgres.composed import listed
from millstream.postgres.connection import Connection

_STAND_IN = "__millstream_stand_in_"


@dataclass(frozen=True)
class Renamed:
    """A relation of which the text has former names."""

    former: NamedRelation
    now: NamedRelation

    @property
    def columns(self) -> dict[str, str]:
        """The present name of each column by its former name."""
        present = dict(self.now.columns)
        return {name: present[attnum] for attnum, name in self.former.columns if attnum in present}

    @property
    def has_other_name(self) -> bool:
        """True if the relation itself was renamed, or moved to another schema."""
        return self.former.qualified != self.now.qualified

    @property
    def has_other_columns(self) -> bool:
        """True if a column was renamed."""
        return any(former != now for former, now in self.columns.items())

    def stand_in(self) -> list[tuple[str, str]]:
        """Return the columns of the stand-in: the present name, and the name that the text has for
        it.
        """
        former = dict(self.former.columns)
        renamed = {former[attnum] for attnum, _ in self.now.columns if attnum in former}
        # A column that came later and has a name that the text uses for another one is out of its
        # reach.
        return [
            (name, former.get(attnum) or (name if name not in renamed else f"__ms_unread_{attnum}"))
            for attnum, name in self.now.columns
        ]


def find(conn: Connection, recorded: Names) -> list[Renamed]:
    """Return the relations of which a text, whose names were recorded, has former names."""
    present = query_names.now(conn, [former.relid for former in recorded])
    pairs = [
        Renamed(former, present[former.relid]) for former in recorded if former.relid in present
    ]
    renamed = [pair for pair in pairs if pair.has_other_name or pair.has_other_columns]
    former_names = [pair.former.qualified for pair in renamed if pair.has_other_name]
    taken = query_names.taken(conn, former_names) if former_names else set()
    return [
        pair for pair in renamed if not pair.has_other_name or pair.former.qualified not in taken
    ]


def present_keys(
    keys: Mapping[int, Sequence[str]], renamed: Sequence[Renamed]
) -> dict[int, tuple[str, ...]]:
    """Return the keys of sources, by oid, with the present names of their columns."""
    columns = {pair.now.relid: pair.columns for pair in renamed}
    return {
        oid: tuple(columns.get(oid, {}).get(name, name) for name in key)
        for oid, key in keys.items()
    }


def follow(conn: Connection, text: str, renamed: Sequence[Renamed]) -> str:
    """Return the text with the present names; raise BadQuery if something that it names is gone."""
    stand_ins = {f"{_STAND_IN}{number}": pair for number, pair in enumerate(renamed)}
    with queries.rolled_back(conn):
        for name, pair in stand_ins.items():
            _make(conn, name, pair)
        by_former_name = {pair.former.qualified: name for name, pair in stand_ins.items()}
        view = queries.temporary_view(conn, _over_stand_ins(text, by_former_name))
        for name, pair in stand_ins.items():
            _rename(conn, name, [(former, now) for now, former in pair.stand_in()])
        printed_by_server = queries.view(conn, view).text
    return _over_relations(printed_by_server, {name: pair.now for name, pair in stand_ins.items()})


def _make(conn: Connection, stand_in: str, pair: Renamed) -> None:
    """Create a stand-in for a relation, with the column names that the text uses."""
    like = sql.SQL("CREATE TEMPORARY TABLE pg_temp.{} (LIKE {})")
    conn.execute(like.format(sql.Identifier(stand_in), sql.Identifier(*pair.now.qualified)))
    # A query may group by the primary key and read the other columns.
    key = listed(map(sql.Identifier, query_names.primary_key(conn, pair.now.relid)))
    if key.as_string(conn):
        conn.execute(
            sql.SQL("ALTER TABLE pg_temp.{} ADD PRIMARY KEY ({})").format(
                sql.Identifier(stand_in), key
            )
        )
    _rename(conn, stand_in, pair.stand_in())


def _rename(conn: Connection, table: str, columns: Sequence[tuple[str, str]]) -> None:
    """Rename columns of a stand-in, each to a temporary name first, so that two columns can swap
    their names.
    """
    rename = sql.SQL("ALTER TABLE pg_temp.{} RENAME COLUMN {} TO {}")
    moving = [
        (now, f"__ms_moving_{number}", then)
        for number, (now, then) in enumerate(columns)
        if now != then
    ]
    steps = [(now, between) for now, between, _ in moving] + [
        (between, then) for _, between, then in moving
    ]
    for now, then in steps:
        conn.execute(
            rename.format(sql.Identifier(table), sql.Identifier(now), sql.Identifier(then))
        )


def _over_stand_ins(text: str, stand_ins: Mapping[tuple[str, str], str]) -> str:
    tree = parsed(text)
    for table in list(tree.find_all(exp.Table)):
        if stand_in := stand_ins.get((table.db, table.name)):
            if not table.alias:
                # Columns are qualified by the name that the table had.
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
            _set_name(table, "pg_temp", stand_in)
    return printed(tree)


def _over_relations(text: str, relations: Mapping[str, NamedRelation]) -> str:
    tree = parsed(text)
    for table in list(tree.find_all(exp.Table)):
        if relation := relations.get(table.name):
            _set_name(table, relation.schema, relation.name)
    return printed(tree)


def _set_name(table: exp.Table, schema: str, name: str) -> None:
    table.set("db", exp.to_identifier(schema, quoted=True))
    table.set("this", exp.to_identifier(name, quoted=True))
