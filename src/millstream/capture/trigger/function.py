"""Build the trigger function that captures the changes of one table: the source itself, or one of
its partitions.

The function runs in the user's transaction, so it must not fail, must be fast, and must not run
code of others:

- It is SECURITY DEFINER, so that writers need no privilege on our schemas. Its search_path is fixed, so that no object
  of theirs can shadow a name. Its SQL is static, and planned once per session. It has no EXCEPTION block, which would
  open a subtransaction for every statement of the user.
- It first checks that the buffer exists and the captured columns are unchanged. If not, it writes an
  X instead of the images, or nothing at all, and the user's statement continues. The session caches the result
  until the table is altered (`millstream_changes.columns_stood`, in the first migration). Under
  REPEATABLE READ a query of pg_attribute shows the transaction's snapshot, while SQL is parsed against
  the current columns. There the function reads the current names by functions that use the system caches, and the
  types from the rows.
- One INSERT writes all images of a statement, from the transition tables. If writes can reach a table without
  firing its statement triggers (see `layout.py`), the same INSERT runs for each row, over NEW and OLD.

An UPDATE writes nothing for a row whose captured columns did not change. Old and new rows are paired by their
position, and a pair with equal images, byte for byte, is skipped. This is exact even if the pairing
were wrong: removing the same image from both sides does not change the difference of the two bags. It costs
one hash join. EXCEPT ALL would compare by `=`, for which 1.0 equals 1.00, and does not work
for json or point.

A virtual generated column is NULL in transition tables and in NEW, so its expression is used
instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from psycopg import sql

from millstream.capture.buffer.slices import SCHEMA, buffer_name, column_name
from millstream.catalog.sources import CapturedColumn
from millstream.postgres.composed import Printed, all_of, in_parentheses, listed

Level = Literal["STATEMENT", "ROW"]


@dataclass(frozen=True)
class CapturedImages:
    """The images that the capture functions of a source write."""

    relid: int
    level: Level
    columns: tuple[CapturedColumn, ...]
    expressions: tuple[str | None, ...]
    """By captured column: the expression of a virtual generated column, as in the source; None for
    other columns.
    """

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.expressions):
            raise ValueError("one expression, or None, for each captured column")


@dataclass(frozen=True)
class Watch:
    """The columns of its own table that a capture function checks before it writes.

    A partition has its own attnums. After it was detached, its columns may be altered, and its
    writers must not fail.
    """

    table: int
    columns: tuple[CapturedColumn, ...]
    """The captured columns, and those in the expressions of virtual ones."""


def function_name(relid: int, table: int) -> str:
    """Return the name, without its schema, of the function that captures changes of a source from
    one of its tables.
    """
    return f"capture_{relid}" if table == relid else f"capture_{relid}_{table}"


def definition(name: str, body: str) -> list[sql.Composed]:
    """Return the statements that create or replace the function."""
    identifier = sql.Identifier(SCHEMA, name)
    create = sql.SQL(
        "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql"
        " SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {}"
    )
    # Otherwise other roles could use our function in a trigger on their own table, and write into
    # the buffer.
    revoke = sql.SQL("REVOKE ALL ON FUNCTION {}() FROM PUBLIC")
    return [create.format(identifier, sql.Literal(body)), revoke.format(identifier)]


def body(images: CapturedImages, watch: Watch) -> sql.Composed:
    """Return the function's body."""
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
        same_old_types=_same_types(watch, _old_rows(images)),
        same_new_types=_same_types(watch, _new_rows(images)),
        **_writes(images),
    )


# -- the rows --------------------------------------------------------------------------------


def _new_rows(images: CapturedImages) -> sql.SQL:
    return sql.SQL("new_rows") if images.level == "STATEMENT" else sql.SQL("(SELECT NEW.*)")


def _old_rows(images: CapturedImages) -> sql.SQL:
    return sql.SQL("old_rows") if images.level == "STATEMENT" else sql.SQL("(SELECT OLD.*)")


def _values(images: CapturedImages) -> list[sql.Composable]:
    """Return the expression of each captured column, over the row `r`."""
    return [
        in_parentheses(Printed(expression)) if expression else sql.Identifier("r", column.name)
        for column, expression in zip(images.columns, images.expressions, strict=True)
    ]


def _names(columns: Sequence[CapturedColumn], of: str | None = None) -> list[sql.Composable]:
    dot = sql.SQL("{}.").format(sql.Identifier(of)) if of else sql.SQL("")
    return [dot + column_name(column.attnum) for column in columns]


# -- what is written -------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _writes(images: CapturedImages) -> dict[str, sql.Composable]:
    """Return the statement for each operation; cached, because all tables of a source have the
    same.
    """
    statements = {
        "insert": _one_sided(images, "I", _new_rows(images)),
        "update": _paired(images),
        "delete": _one_sided(images, "D", _old_rows(images)),
    }
    return {
        operation: Printed(statement.as_string()) for operation, statement in statements.items()
    }


def _one_sided(images: CapturedImages, action: Literal["I", "D"], rows: sql.SQL) -> sql.Composed:
    return sql.SQL("INSERT INTO {buffer} ({columns}) SELECT {values} FROM {rows} AS r").format(
        buffer=buffer_name(images.relid),
        columns=listed([sql.SQL("xid"), sql.SQL("action"), *_names(images.columns)]),
        values=listed([sql.SQL("pg_current_xact_id()"), sql.Literal(action), *_values(images)]),
        rows=rows,
    )


def _paired(images: CapturedImages) -> sql.Composable:
    """Return the INSERT for an UPDATE: D and I images of the pairs that differ; see the header."""
    if not images.columns:
        # Rows without columns are all equal.
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
        columns=listed([sql.SQL("xid"), sql.SQL("action"), *_names(images.columns)]),
        values=listed(
            [sql.SQL("pg_current_xact_id()"), sql.SQL("i.action"), *_names(images.columns, "i")]
        ),
        went=_numbered(images, _old_rows(images)),
        came=_numbered(images, _new_rows(images)),
        old=listed([sql.SQL("went.pair, 'D'::\"char\""), *_names(images.columns, "went")]),
        new=listed([sql.SQL("came.pair, 'I'"), *_names(images.columns, "came")]),
        names=listed([sql.SQL("pair, action"), *_names(images.columns)]),
    )


def _numbered(images: CapturedImages, rows: sql.SQL) -> sql.Composed:
    """Return a subquery of the rows with their positions, and their image as one record."""
    columns = [
        value + sql.SQL(" AS ") + column_name(column.attnum)
        for value, column in zip(_values(images), images.columns, strict=True)
    ]
    return sql.SQL(
        "(SELECT p.*, ROW({names}) AS image"
        " FROM (SELECT row_number() OVER () AS pair, {columns} FROM {rows} AS r) AS p)"
    ).format(names=listed(_names(images.columns, "p")), columns=listed(columns), rows=rows)


# -- checks before writing -------------------------------------------------------------------


def _as_recorded(watch: Watch) -> sql.Composed:
    """Return a test that the watched columns have their recorded names, types, modifiers and
    collations.

    It is an expression over constants: PL/pgSQL evaluates it once per session, and again after the
    table is altered.
    """
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
    """Return a test that a column has another name now.

    The system caches show the present, whatever the snapshot.
    """
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
    """Return a test that the first row has the recorded types; without a row there is nothing to
    capture.
    """
    each = [
        sql.SQL("pg_typeof({})::oid = {}").format(
            sql.Identifier("r", column.name), sql.Literal(column.type_oid)
        )
        for column in watch.columns
    ]
    alike = all_of([sql.SQL("true"), *each])
    return sql.SQL("coalesce((SELECT {} FROM {} AS r LIMIT 1), true)").format(alike, rows)


def _array(values: Sequence[int] | Sequence[str]) -> sql.Composed:
    return sql.SQL("ARRAY[{}]").format(listed([sql.Literal(value) for value in values]))
