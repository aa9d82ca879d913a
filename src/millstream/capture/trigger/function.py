"""The text of a capture function, which the triggers of one table run: the source itself, or one of its members.

It runs in the user's transaction, so it must not fail, must not be slow, and must not be fooled:

- SECURITY DEFINER, so that writers need no right on our schemas; search_path pinned, so that nothing of
  theirs can shadow a name; static SQL, planned once per session; no EXCEPTION block, which would open a
  sub-transaction for every statement of the user's.
- It first looks whether the buffer is there and the captured columns are as they were. If not, it leaves an
  X in place of the images, or nothing at all, and the user's statement goes on. The answer is remembered by
  the session until the table is altered (`millstream_changes.columns_stood`, in the first migration). Under
  REPEATABLE READ a query of pg_attribute answers for the transaction's snapshot, while SQL is parsed against
  the columns of this moment; there the names are asked of functions that know this moment, and the types of
  the rows themselves.
- Images are written set-wise, from the transition tables. Where writes can reach the rows of a table without
  firing its statement triggers (see `levels.py`), the same statements run row by row, over NEW and OLD.

An UPDATE leaves nothing when no captured image changed. The old and the new rows are paired by their
place, and a pair whose images are the same byte for byte is left out. That is exact even if the pairing
were wrong: taking the same image from both sides leaves the difference of the two bags as it is. It costs
one hash join, where EXCEPT ALL would compare by `=` (1.0 and 1.00 are equal, and differ) and would not work
at all for json or point.

A virtual generated column is NULL in transition tables and in NEW; its expression stands in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from psycopg import sql

from millstream.capture.buffer.buffer_table import printed
from millstream.capture.buffer.slices import SCHEMA, buffer_name, column_name
from millstream.catalog.sources import CapturedColumn

Level = Literal["STATEMENT", "ROW"]


@dataclass(frozen=True)
class CapturedImages:
    """What the capture functions of a source write."""

    relid: int
    level: Level
    columns: tuple[CapturedColumn, ...]
    expressions: tuple[str | None, ...]
    """For each captured column: the expression of a virtual generated one, as the source itself has it."""

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.expressions):
            raise ValueError("one expression, or None, for each captured column")


@dataclass(frozen=True)
class Watch:
    """What a capture function looks at before it writes: the columns of its own table that it is going to name.

    A member has them under attnums of its own. One that was detached goes its own way, and must be able to.
    """

    table: int
    columns: tuple[CapturedColumn, ...]
    """The captured columns, and those that the expressions of virtual ones are made of."""


def function_name(relid: int, table: int) -> str:
    """The name, without its schema, of the function that captures for a source from one of its tables."""
    return f"capture_{relid}" if table == relid else f"capture_{relid}_{table}"


def definition(name: str, body: str) -> list[sql.Composed]:
    """The statements that make the function, or make it anew."""
    identifier = sql.Identifier(SCHEMA, name)
    create = sql.SQL(
        "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql"
        " SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {}"
    )
    # Nobody may hang our function on a table of their own and write into the buffer through it.
    revoke = sql.SQL("REVOKE ALL ON FUNCTION {}() FROM PUBLIC")
    return [create.format(identifier, sql.Literal(body)), revoke.format(identifier)]


def body(images: CapturedImages, watch: Watch) -> sql.Composed:
    """The function's body."""
    return sql.SQL("""
#variable_conflict use_column
DECLARE
    intact boolean;
BEGIN
    IF to_regclass({buffer_text}) IS NULL THEN
        RETURN NULL;
    ELSIF TG_OP = 'TRUNCATE' THEN
        INSERT INTO {buffer} (xid, action) VALUES (pg_current_xact_id(), 'T');
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        intact := {as_recorded};
    ELSIF {other_names} THEN
        intact := false;
    ELSIF TG_OP = 'DELETE' THEN
        intact := {same_old_types};
    ELSE
        intact := {same_new_types};
    END IF;
    IF NOT intact THEN
        INSERT INTO {buffer} (xid, action) VALUES (pg_current_xact_id(), 'X');
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        {insert};
    ELSIF TG_OP = 'UPDATE' THEN
        {update};
    ELSE
        {delete};
    END IF;
    RETURN NULL;
END
""").format(
        buffer_text=sql.Literal(f"{SCHEMA}.changes_{images.relid}"),
        buffer=buffer_name(images.relid),
        as_recorded=_as_recorded(watch),
        other_names=_other_names(watch),
        same_old_types=_same_types(watch, _went(images)),
        same_new_types=_same_types(watch, _came(images)),
        **_writes(images),
    )


# -- the rows --------------------------------------------------------------------------------


def _came(images: CapturedImages) -> sql.SQL:
    return sql.SQL("new_rows") if images.level == "STATEMENT" else sql.SQL("(SELECT NEW.*)")


def _went(images: CapturedImages) -> sql.SQL:
    return sql.SQL("old_rows") if images.level == "STATEMENT" else sql.SQL("(SELECT OLD.*)")


def _values(images: CapturedImages) -> list[sql.Composable]:
    """Each captured column of the row `r`."""
    return [
        sql.SQL("({})").format(printed(expression)) if expression else sql.Identifier("r", column.name)
        for column, expression in zip(images.columns, images.expressions, strict=True)
    ]


def _names(columns: Sequence[CapturedColumn], of: str | None = None) -> list[sql.Composable]:
    dot = sql.SQL("{}.").format(sql.Identifier(of)) if of else sql.SQL("")
    return [dot + column_name(column.attnum) for column in columns]


def _listed(parts: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


# -- what is written -------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _writes(images: CapturedImages) -> dict[str, sql.SQL]:
    """What each operation writes; printed once for all the tables of a source."""
    statements = {
        "insert": _one_sided(images, "I", _came(images)),
        "update": _paired(images),
        "delete": _one_sided(images, "D", _went(images)),
    }
    return {operation: printed(statement.as_string()) for operation, statement in statements.items()}


def _one_sided(images: CapturedImages, action: Literal["I", "D"], rows: sql.SQL) -> sql.Composed:
    return sql.SQL("INSERT INTO {buffer} ({columns}) SELECT {values} FROM {rows} AS r").format(
        buffer=buffer_name(images.relid),
        columns=_listed([sql.SQL("xid"), sql.SQL("action"), *_names(images.columns)]),
        values=_listed([sql.SQL("pg_current_xact_id()"), sql.Literal(action), *_values(images)]),
        rows=rows,
    )


def _paired(images: CapturedImages) -> sql.Composable:
    """D and I of the pairs that differ; see the head of this file for why the pairing may be naive."""
    if not images.columns:
        # Rows of no columns are all alike.
        return sql.SQL("NULL")
    return sql.SQL(
        """INSERT INTO {buffer} ({columns})
        SELECT {values}
        FROM {went} AS went
        FULL JOIN {came} AS came ON came.pair = went.pair
        CROSS JOIN LATERAL (VALUES ({old}), ({new})) AS i ({names})
        WHERE i.pair IS NOT NULL
            AND (went.pair IS NULL OR came.pair IS NULL OR NOT went.image OPERATOR(pg_catalog.*=) came.image)"""
    ).format(
        buffer=buffer_name(images.relid),
        columns=_listed([sql.SQL("xid"), sql.SQL("action"), *_names(images.columns)]),
        values=_listed([sql.SQL("pg_current_xact_id()"), sql.SQL("i.action"), *_names(images.columns, "i")]),
        went=_numbered(images, _went(images)),
        came=_numbered(images, _came(images)),
        old=_listed([sql.SQL("went.pair, 'D'::\"char\""), *_names(images.columns, "went")]),
        new=_listed([sql.SQL("came.pair, 'I'"), *_names(images.columns, "came")]),
        names=_listed([sql.SQL("pair, action"), *_names(images.columns)]),
    )


def _numbered(images: CapturedImages, rows: sql.SQL) -> sql.Composed:
    """The rows with their place among them, and their image as one record."""
    columns = [
        value + sql.SQL(" AS ") + column_name(column.attnum)
        for value, column in zip(_values(images), images.columns, strict=True)
    ]
    return sql.SQL(
        "(SELECT p.*, ROW({names}) AS image"
        " FROM (SELECT row_number() OVER () AS pair, {columns} FROM {rows} AS r) AS p)"
    ).format(names=_listed(_names(images.columns, "p")), columns=_listed(columns), rows=rows)


# -- what is looked at first -----------------------------------------------------------------


def _as_recorded(watch: Watch) -> sql.Composed:
    """Are the watched columns there, with their names, types, modifiers and collations? Asked once per session and
    definition of the table: a simple expression over constants, folded, and dropped when the table is altered."""
    return sql.SQL(
        "millstream_changes.columns_stood({source}::regclass,"
        " {attnums}::int2[], {names}::name[], {types}::oid[], {typmods}::int4[], {collations}::oid[])"
    ).format(
        source=sql.Literal(str(watch.table)),
        attnums=_array([column.attnum for column in watch.columns]),
        names=_array([column.name for column in watch.columns]),
        types=_array([column.type_oid for column in watch.columns]),
        typmods=_array([column.typmod for column in watch.columns]),
        collations=_array([column.collation for column in watch.columns]),
    )


def _other_names(watch: Watch) -> sql.Composed:
    """Asked of the system caches, which no snapshot holds back."""
    return sql.SQL(
        "EXISTS (SELECT FROM unnest({attnums}::int4[], {names}::text[]) AS w (attnum, attname)"
        " WHERE (pg_identify_object_as_address({classid}, {relid}, w.attnum)).object_names[3]"
        " IS DISTINCT FROM w.attname)"
    ).format(
        classid=sql.Literal(1259),  # pg_class
        relid=sql.Literal(watch.table),
        attnums=_array([column.attnum for column in watch.columns]),
        names=_array([column.name for column in watch.columns]),
    )


def _same_types(watch: Watch, rows: sql.SQL) -> sql.Composed:
    """Asked of the first row; without a row there is nothing to capture."""
    each = [
        sql.SQL("pg_typeof({})::oid = {}").format(sql.Identifier("r", column.name), sql.Literal(column.type_oid))
        for column in watch.columns
    ]
    alike = sql.SQL(" AND ").join([sql.SQL("true"), *each])
    return sql.SQL("coalesce((SELECT {} FROM {} AS r LIMIT 1), true)").format(alike, rows)


def _array(values: Sequence[int] | Sequence[str]) -> sql.Composed:
    return sql.SQL("ARRAY[{}]").format(_listed([sql.Literal(value) for value in values]))
