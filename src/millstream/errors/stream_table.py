"""Errors about a stream table: its name, its state, its table (MS2xx)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from millstream.errors.base import MillstreamError, typed


class NameTaken(MillstreamError):
    """A relation of that name already exists."""

    code = "MS201"

    @classmethod
    def by(cls, name: str, kind: str) -> Self:
        return cls(
            f'"{name}" already exists',
            detail=f"It is a {kind}.",
            hint="Choose another name, or drop it first.",
            name=name,
            kind=kind,
        )

    @classmethod
    def by_schema(cls, name: str, owner: str) -> Self:
        return cls(
            f'schema "{name}" already exists and has no Millstream catalog',
            detail=f'It belongs to role "{owner}". Millstream installs only into schemas that it has created.',
            hint=f"Rename it with ALTER SCHEMA {name} RENAME TO another_name, or drop it.",
            name=name,
            owner=owner,
        )


class NoSuchStreamTable(MillstreamError):
    """No stream table of that name exists."""

    code = "MS202"

    @classmethod
    def named(cls, name: str) -> Self:
        return cls(
            f'stream table "{name}" does not exist',
            hint="See the names with: millstream list",
            name=name,
        )


class StillUsed(MillstreamError):
    """Other objects depend on the stream table, or are in the schema, that would be dropped."""

    code = "MS203"

    @classmethod
    def by(cls, name: str, dependants: list[str]) -> Self:
        return cls(
            f'stream table "{name}" is still in use',
            detail=f"Used by: {', '.join(dependants)}.",
            hint=f"Drop these first, or together with: millstream drop --cascade {typed(name)}",
            name=name,
        )

    @classmethod
    def schema(cls, name: str, tables: list[str]) -> Self:
        return cls(
            f'schema "{name}" contains tables that are not Millstream\'s',
            detail=f"They are: {', '.join(tables)}.",
            hint=f"Move them, for example: {' '.join(f'ALTER TABLE {table} SET SCHEMA public;' for table in tables)} "
            "Or drop them too with: millstream uninstall --cascade --yes",
            name=name,
        )


class TargetMoved(MillstreamError):
    """The table of a stream table was renamed, replaced or dropped."""

    code = "MS204"

    @classmethod
    def renamed(cls, name: str) -> Self:
        return cls(
            f'the table of stream table "{name}" has been renamed',
            detail="Another table has its name now; Millstream does not touch that one, and follows a new name only if "
            "the former one is free.",
            hint="Rename it back with ALTER TABLE ... RENAME TO. Or keep the table and remove the stream table from "
            f"the catalog with: millstream drop --forget {typed(name)}",
            name=name,
        )

    @classmethod
    def another(cls, name: str, found: str) -> Self:
        return cls(
            f'the table of stream table "{name}" is now {found}',
            detail="It was renamed, or it is another table. Nothing was changed.",
            hint="Rename it back with ALTER TABLE ... RENAME TO. Or keep the table and remove the stream table from "
            f"the catalog with: millstream drop --forget {typed(name)}",
            name=name,
            found=found,
        )

    @classmethod
    def unmarked(cls, name: str, marks: Sequence[str]) -> Self:
        return cls(
            f'the table of stream table "{name}" does not have Millstream\'s comment',
            detail=(
                "Millstream recognizes the table by a comment on its unique index, which is gone. Nothing was changed."
            ),
            hint="If the table is the stream table's, restore the comment with: "
            f"{'; '.join(marks) or 'CREATE UNIQUE INDEX on its key first'}. Or keep the table and remove the stream "
            f"table from the catalog with: millstream drop --forget {typed(name)}",
            name=name,
            marks=list(marks),
        )

    @classmethod
    def dropped(cls, name: str) -> Self:
        return cls(
            f'the table of stream table "{name}" has been dropped',
            hint=f"Remove the stream table with: millstream drop {typed(name)}. Then create it again.",
            name=name,
        )


class TargetAltered(MillstreamError):
    """The table of a stream table was altered and cannot store the rows of the query."""

    code = "MS206"

    @classmethod
    def column(cls, name: str, what: str) -> Self:
        return cls(
            f'the table of stream table "{name}" was altered',
            detail=what,
            hint="Restore the query's columns, with their names and types, by ALTER TABLE: the next refresh fills "
            f"them. Or drop the stream table with: millstream drop {typed(name)}. Then create it again.",
            name=name,
        )

    @classmethod
    def has(cls, name: str, what: str, remedy: str) -> Self:
        return cls(
            f'the table of stream table "{name}" was altered',
            detail=what,
            hint=f"Undo it with: {remedy}",
            name=name,
        )


class TriggerInterferes(MillstreamError):
    """A BEFORE ROW trigger on a stream table changed or dropped rows that a refresh wrote; nothing
    was applied.
    """

    code = "MS207"

    @classmethod
    def by(cls, name: str, table: str, triggers: str, what: str) -> Self:
        drops = "; ".join(f"DROP TRIGGER {trigger} ON {table}" for trigger in triggers.split(", "))
        return cls(
            f'a trigger on stream table "{name}" changes the rows that a refresh writes',
            detail=f"{what} BEFORE ROW triggers: {triggers}.",
            hint=f"Use an AFTER trigger instead, or drop it with: {drops}",
            name=name,
            triggers=triggers,
        )


class NotFilled(MillstreamError):
    """A stream table reads another one that has never been refreshed."""

    code = "MS205"
    retryable = True
    skips = True

    @classmethod
    def upstream(cls, name: str, upstream: str) -> Self:
        # `upstream` is schema.name.
        address = typed(*upstream.split(".", 1))
        return cls(
            f'stream table "{name}" reads "{upstream}", which has not been filled yet',
            detail="If it were refreshed now, it would treat that table as empty.",
            hint=f"See why with: millstream history {address}. Fill it with: millstream refresh {address}",
            name=name,
            upstream=upstream,
        )


class NotAdopted(MillstreamError):
    """Some stream tables of a restored catalog cannot be adopted in this database."""

    code = "MS208"

    @classmethod
    def listing(cls, unresolved: Sequence[tuple[str, str]]) -> Self:
        names = " ".join(f"--forget {name}" for name, _ in unresolved)
        return cls(
            f"{len(unresolved)} stream tables cannot be adopted",
            detail=" ".join(f"{name}: {reason}." for name, reason in unresolved)
            + " Nothing was changed.",
            hint="Repair them and adopt again. Or keep their tables and remove them from the catalog with: "
            f"millstream adopt {names}",
            unresolved=list(unresolved),
        )
