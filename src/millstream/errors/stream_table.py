"""A stream table: its name, its state, its table (MS2xx)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from millstream.errors.base import MillstreamError, typed


class NameTaken(MillstreamError):
    """There is already a relation of that name."""

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
            f'schema "{name}" already exists, without a catalog of Millstream in it',
            detail=f'It belongs to role "{owner}". Millstream installs only into schemas that it creates itself.',
            hint=f"Rename it with ALTER SCHEMA {name} RENAME TO another_name, or drop it.",
            name=name,
            owner=owner,
        )


class NoSuchStreamTable(MillstreamError):
    """There is no stream table of that name."""

    code = "MS202"

    @classmethod
    def named(cls, name: str) -> Self:
        return cls(f'stream table "{name}" does not exist', hint="See the names with: millstream list", name=name)


class StillUsed(MillstreamError):
    """Something depends on it, or stands in it."""

    code = "MS203"

    @classmethod
    def by(cls, name: str, dependants: list[str]) -> Self:
        return cls(
            f'stream table "{name}" is still used',
            detail=f"Used by: {', '.join(dependants)}.",
            hint=f"Drop these first, or together with: millstream drop --cascade {typed(name)}",
            name=name,
        )

    @classmethod
    def schema(cls, name: str, tables: list[str]) -> Self:
        return cls(
            f'schema "{name}" holds tables that are not ours',
            detail=f"They are: {', '.join(tables)}.",
            hint=f"Move them, for example: {' '.join(f'ALTER TABLE {one} SET SCHEMA public;' for one in tables)} "
            "Or lose them with: millstream uninstall --cascade --yes",
            name=name,
        )


class TargetMoved(MillstreamError):
    """The table of a stream table has another name, or is gone."""

    code = "MS204"

    @classmethod
    def renamed(cls, name: str) -> Self:
        return cls(
            f'the table of stream table "{name}" has been renamed',
            detail="A table that has its name by now is not ours, and is left alone.",
            hint="Give it its name back with ALTER TABLE. Or leave the table as it is, and forget the stream table "
            f"with: millstream drop --forget {typed(name)}",
            name=name,
        )

    @classmethod
    def another(cls, name: str, found: str) -> Self:
        return cls(
            f'the table of stream table "{name}" is {found} by now',
            detail="It was renamed, or it is another table. It is left alone, and nothing was done.",
            hint="Give it its name back with ALTER TABLE. Or leave the table as it is, and forget the stream table "
            f"with: millstream drop --forget {typed(name)}",
            name=name,
            found=found,
        )

    @classmethod
    def unmarked(cls, name: str, marks: Sequence[str]) -> Self:
        return cls(
            f'the table of stream table "{name}" has no mark of ours',
            detail="A comment on its unique index says that Millstream made it; it is gone. Nothing was done.",
            hint="If the table is the stream table's, mark it with: "
            f"{'; '.join(marks) or 'CREATE UNIQUE INDEX over its key first'}. Or leave the table as it is, and forget "
            f"the stream table with: millstream drop --forget {typed(name)}",
            name=name,
            marks=list(marks),
        )

    @classmethod
    def dropped(cls, name: str) -> Self:
        return cls(
            f'the table of stream table "{name}" has been dropped',
            hint=f"Drop what is left of it with: millstream drop {typed(name)}. Then create it again.",
            name=name,
        )


class TargetAltered(MillstreamError):
    """The table of a stream table was altered so that the rows of its query cannot be stored in it."""

    code = "MS206"

    @classmethod
    def column(cls, name: str, what: str) -> Self:
        return cls(
            f'the table of stream table "{name}" was altered',
            detail=what,
            hint="Give it back the query's columns, by name and type, with ALTER TABLE: the next refresh fills them. "
            f"Or drop it with: millstream drop {typed(name)}. Then create it again.",
            name=name,
        )

    @classmethod
    def has(cls, name: str, what: str, remedy: str) -> Self:
        return cls(
            f'the table of stream table "{name}" was altered',
            detail=what,
            hint=f"Take that back with: {remedy}",
            name=name,
        )


class TriggerInterferes(MillstreamError):
    """A BEFORE ROW trigger on a stream table changed or dropped rows that a refresh wrote; nothing was applied."""

    code = "MS207"

    @classmethod
    def by(cls, name: str, table: str, triggers: str, what: str) -> Self:
        drops = "; ".join(f"DROP TRIGGER {trigger} ON {table}" for trigger in triggers.split(", "))
        return cls(
            f'a trigger on stream table "{name}" changes the rows that are written to it',
            detail=f"{what} BEFORE ROW triggers: {triggers}.",
            hint=f"Make it an AFTER trigger, or drop it with: {drops}",
            name=name,
            triggers=triggers,
        )


class NotFilled(MillstreamError):
    """A stream table that another one reads has no rows yet."""

    code = "MS205"
    retryable = True

    @classmethod
    def upstream(cls, name: str, upstream: str) -> Self:
        # Its schema and its name.
        address = typed(*upstream.split(".", 1))
        return cls(
            f'stream table "{name}" reads "{upstream}", which has not been filled yet',
            detail="Computed now, it would look as if there were no rows.",
            hint=f"See why with: millstream history {address}. It is filled by: millstream refresh {address}",
            name=name,
            upstream=upstream,
        )


class NotAdopted(MillstreamError):
    """Stream tables that cannot be resolved in the database that the catalog came to."""

    code = "MS208"

    @classmethod
    def listing(cls, unresolved: Sequence[tuple[str, str]]) -> Self:
        names = " ".join(f"--forget {name}" for name, _ in unresolved)
        return cls(
            f"{len(unresolved)} stream tables cannot be adopted",
            detail=" ".join(f"{name}: {reason}." for name, reason in unresolved) + " Nothing was changed.",
            hint=f"Repair them and adopt again, or leave their tables alone and forget them: millstream adopt {names}",
            unresolved=list(unresolved),
        )
