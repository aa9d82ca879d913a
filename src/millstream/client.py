"""The Python API: `millstream.connect(dsn)` and what can be done with it.

with millstream.connect("postgresql://localhost/shop") as ms:
    ms.create_stream_table("totals", "SELECT region, sum(amount) FROM orders GROUP BY region", schedule="1s")
    ms.refresh("totals")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from millstream.catalog.history import HistoryEntry
from millstream.catalog.installation import install
from millstream.errors import BadSetting, NotYet
from millstream.refresh.report import RefreshReport
from millstream.service import adopt, explain, live_settings, refresh
from millstream.service.adopt import Adoption
from millstream.service.api_boundary import public
from millstream.service.app import App, Progress
from millstream.service.define import alter, create, create_or_replace, drop, validate
from millstream.service.define.validate import Validation
from millstream.service.explain import Explanation
from millstream.service.live_settings import SettingInfo
from millstream.service.monitoring import health, status
from millstream.service.monitoring.doctor import Check
from millstream.service.monitoring.status import StreamTableStatus
from millstream.service.verification import verify
from millstream.service.verification.verification import Verification
from millstream.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Millstream:
    """A database with Millstream in it. Use it as a context manager, from one thread at a time."""

    def __init__(self, app: App) -> None:
        self.app = app

    @public
    def create_stream_table(
        self,
        name: str,
        query: str,
        schedule: str = "1m",
        refresh_mode: str = "AUTO",
        initialize: bool = True,
        cdc_mode: str | None = None,
        owner: str | None = None,
        settings: Mapping[str, str] | None = None,
        assume_immutable: Sequence[str] | None = None,
    ) -> RefreshReport | None:
        """Create a stream table over a query and fill it; None when `initialize` is off.

        It belongs to `owner`, by default the role of the connection, and shows nothing that this
        role may not read. Its query is evaluated with these session `settings`, such as TimeZone;
        others are those that the dsn gives a session. `assume_immutable` names STABLE functions of
        users that depend on their arguments alone.
        """
        return create.create(
            self.app,
            name,
            query,
            schedule=schedule,
            refresh_mode=refresh_mode,
            initialize=initialize,
            cdc_mode=cdc_mode,
            owner=owner,
            settings=settings,
            assume_immutable=assume_immutable,
        )

    @public
    def create_or_replace_stream_table(
        self,
        name: str,
        query: str,
        schedule: str = "1m",
        refresh_mode: str = "AUTO",
        initialize: bool = True,
        cdc_mode: str | None = None,
        owner: str | None = None,
        settings: Mapping[str, str] | None = None,
        assume_immutable: Sequence[str] | None = None,
    ) -> RefreshReport | None:
        """Create a stream table, or alter the one of that name where it differs; None if no refresh
        was needed.
        """
        return create_or_replace.create_or_replace(
            self.app,
            name,
            query,
            schedule=schedule,
            refresh_mode=refresh_mode,
            initialize=initialize,
            cdc_mode=cdc_mode,
            owner=owner,
            settings=settings,
            assume_immutable=assume_immutable,
        )

    @public
    def validate(
        self,
        query: str,
        *,
        owner: str | None = None,
        cdc_mode: str | None = None,
        schedule: str | None = None,
        settings: Mapping[str, str] | None = None,
        assume_immutable: Sequence[str] | None = None,
    ) -> Validation:
        """What a stream table over a query would be, or why it is refused; nothing is created."""
        return validate.validate(
            self.app,
            query,
            owner,
            cdc_mode,
            schedule=schedule,
            settings=settings,
            assume_immutable=assume_immutable,
        )

    @public
    def alter_stream_table(
        self,
        name: str,
        *,
        schedule: str | None = None,
        refresh_mode: str | None = None,
        status: str | None = None,
        query: str | None = None,
        cdc_mode: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> RefreshReport | None:
        """Change what is given: query, session settings, schedule, refresh mode, CDC mode, or status
        (ACTIVE or SUSPENDED).

        With another query or other settings the rows are changed in the same transaction; the report of that is
        returned.
        """
        return alter.alter(
            self.app,
            name,
            schedule=schedule,
            refresh_mode=refresh_mode,
            status=status,
            query=query,
            cdc_mode=cdc_mode,
            settings=settings,
        )

    @public
    def drop_stream_table(self, name: str, cascade: bool = False, *, forget: bool = False) -> None:
        """Drop a stream table; with `cascade`, what depends on its table too; with `forget`, leave
        its table alone.
        """
        drop.drop(self.app, name, cascade=cascade, forget=forget)

    @public
    def refresh(self, name: str, *, full: bool = False) -> RefreshReport:
        """Refresh one stream table now; `full` recomputes it and applies the difference."""
        return refresh.refresh(self.app, name, full=full)

    @public
    def refresh_all(self) -> list[RefreshReport]:
        """Refresh every stream table, all at one cut."""
        return refresh.refresh_all(self.app)

    @public
    def tick(self) -> list[RefreshReport]:
        """One scheduler tick: refresh whatever is due, at one cut."""
        return refresh.tick(self.app)

    @public
    def verify(self, name: str) -> Verification:
        """Compare a stream table with its query, at one snapshot."""
        return verify.verify(self.app, name)

    @public
    def explain(self, name: str) -> Explanation:
        """How a stream table is maintained; `str()` of it is the text."""
        return explain.explain(self.app, name)

    @public
    def table(self, name: str) -> DataFrame:
        """The stream table's rows as a Spark DataFrame."""
        from millstream.service.to_dataframe import to_dataframe

        return to_dataframe(self.app, name)

    @public
    def status(self) -> list[StreamTableStatus]:
        """Every stream table: state, freshness, what waits."""
        return status.status(self.app)

    @public
    def history(self, name: str, n: int = 20) -> list[HistoryEntry]:
        """Return the last refreshes, newest first."""
        return status.history(self.app, name, n)

    @public
    def health(self) -> list[Check]:
        """One check per stream table (does it keep up?) and per source (is it captured whole?)."""
        return health.health(self.app)

    @public
    def settings(self) -> list[SettingInfo]:
        """Every setting as this connection has it: value, default, and where the value comes from."""
        return live_settings.show(self.app)

    @public
    def set_setting(self, name: str, value: str) -> None:
        """Store a setting in the database; the service takes it over.

        `value` is written as in the settings file.
        """
        live_settings.store(self.app, name, value)

    @public
    def reset_setting(self, name: str) -> None:
        """Remove a setting from the database."""
        live_settings.reset(self.app, name)

    @public
    def events(self, name: str, after: int = 0) -> NoReturn:
        """Change events of a stream table: refused, they are not kept yet."""
        raise NotYet.feature(
            "reading change events",
            "Put a trigger on the stream table: it fires on real changes only.",
        )

    @public
    def adopt(self, *, forget: Sequence[str] = (), dry_run: bool = False) -> Adoption:
        """Make a catalog that was restored or copied into this database work here; leave alone what
        `forget` names.
        """
        return adopt.adopt(self.app, forget=forget, dry_run=dry_run)

    @public
    def uninstall(self, *, cascade: bool = False, forget: bool = False) -> None:
        """Remove Millstream and every stream table from the database; with `forget`, leave their
        tables alone.
        """
        self.app.reach()
        share = self.app.settings.max_lock_share
        install.uninstall(self.app.conn, cascade=cascade, forget=forget, lock_share=share)

    @public
    def close(self) -> None:
        """Close the connection."""
        self.app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@public
def connect(
    dsn: str,
    spark: SparkSession | None = None,
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
) -> Millstream:
    """Connect to a database, installing the catalog if it is not there.

    A given Spark session is used as it is.
    """
    _check_given(spark, settings, progress)
    app = App(dsn, settings or Settings(), spark, progress)
    try:
        install.install(app.conn)
        app.use(live_settings.read(app.conn, app.given))
    except BaseException:
        app.close()
        raise
    return Millstream(app)


def _check_given(spark: object, settings: object, progress: object) -> None:
    # Imported here: the module is imported by whoever asks for the version, too.
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession | None):
        raise BadSetting.of("spark", spark, "a SparkSession or None")
    if not isinstance(settings, Settings | None):
        raise BadSetting.of("settings", settings, "a millstream.Settings or None")
    if progress is not None and not callable(progress):
        raise BadSetting.of("progress", progress, "a function of a step and a share, or None")
