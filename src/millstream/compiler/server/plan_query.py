"""Plan a query: analyse it with PostgreSQL, refuse what cannot be maintained, split it into blocks."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable

import psycopg
from psycopg import sql
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millstream.algebra.block import AggregateBlock, Block, Key, MaterializedBlock, WindowBlock
from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Expr
from millstream.algebra.query_part import noted_part
from millstream.algebra.relation import Relation, Scan
from millstream.algebra.table import ROW, BlockRows, SourceTable, Table
from millstream.algebra.types import PgType
from millstream.catalog import stream_tables
from millstream.catalog.definitions import definition_digests, foreign_code, query_names
from millstream.catalog.definitions import rights as owner_rights
from millstream.catalog.definitions.definition_digests import Digests
from millstream.catalog.definitions.query_names import Names
from millstream.catalog.row_key import RowKey
from millstream.catalog.upstreams import Upstream
from millstream.compiler.blocks.split import split_into_blocks
from millstream.compiler.clauses import clock
from millstream.compiler.clauses.build import build_relation
from millstream.compiler.server import check, node_tree, position, queries, volatility
from millstream.compiler.server.find_call import find_call
from millstream.compiler.server.json_paths import check_paths
from millstream.compiler.server.node_tree import converted_types
from millstream.compiler.server.queries import Canonical
from millstream.compiler.server.questions import Constant
from millstream.compiler.server.row_ids import without_row_ids
from millstream.compiler.server.upstreams import upstreams_under
from millstream.compiler.server.viewdef import comparable_text
from millstream.compiler.server.whole_rows import expand_whole_rows
from millstream.compiler.workaround import for_function
from millstream.errors import (
    BadQuery,
    LockNotHad,
    MillstreamError,
    PlanningFailed,
    QueryError,
    Unsupported,
    Volatile,
)
from millstream.large_stack import on_large_stack
from millstream.observe import log
from millstream.postgres import relations, session_settings
from millstream.postgres.composed import Printed, aliased, listed
from millstream.postgres.connection import Connection
from millstream.postgres.failures import code_of, failure
from millstream.postgres.session_settings import without_styles
from millstream.store import materialized_rows, state
from millstream.store.names import PART, ROW_ID, BlockNames, PlanningNames, from_item


@dataclass(frozen=True)
class QueryPlan:
    """The plan of a query: its analysis, its relation and its blocks."""

    query: str
    canonical: Canonical
    relation: Relation
    blocks: tuple[Block, ...]
    digests: Digests
    """The digests of all definitions that the plan depends on, taken before it was made."""
    upstreams: tuple[Upstream, ...] = ()
    """The stream tables that the query reads, through views and functions too."""
    names: Names = ()
    """The names that the query's text uses for the relations that it reads."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The session settings that its result depends on."""

    @property
    def block(self) -> Block:
        """The block whose output is the stream table."""
        return self.blocks[-1]

    @property
    def reads_clock(self) -> bool:
        """True if the query reads the time."""
        return any(block.reads_clock for block in self.blocks)

    def sources(self) -> dict[int, tuple[SourceTable, tuple[str, ...]]]:
        """Return each source by its oid, with the columns that the query reads."""
        used = dict[int, tuple[SourceTable, set[str]]]()
        for input_ in (input_ for block in self.blocks for input_ in block.inputs()):
            table = input_.scan.table
            if isinstance(table, SourceTable):
                used.setdefault(table.oid, (table, set()))[1].update(input_.used())
        return {oid: (table, tuple(sorted(columns))) for oid, (table, columns) in used.items()}

    def row_key(self) -> RowKey:
        """Return the key of the rows, for the catalog."""
        return RowKey(
            self.block.key, {oid: table.key for oid, (table, _) in self.sources().items()}
        )

    def stored_in(self, target: Digests) -> QueryPlan:
        """Return the plan with the digests of the existing target table."""
        return replace(self, digests=self.digests | target)

    def keyed(self, key: Key) -> QueryPlan:
        """Return the plan with another key."""
        return replace(self, blocks=(*self.blocks[:-1], replace(self.block, key=key)))


@dataclass(frozen=True)
class Terms:
    """The terms under which a query is planned: who owns it, and what it takes for granted."""

    owner: str | None = None
    """The role that must be allowed to read all of it; None for the role of the session."""
    trusted_roles: tuple[str, ...] = ()
    """The roles whose code it may call."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The session settings with which its text is read; others are those of our sessions."""
    assumed: Sequence[str] = ()
    """The stable functions that it takes for immutable, as `queries.Function` names them."""


OWN = Terms()


# The packages that decide the blocks of a query and what their rows mean.
_PLANNERS = ("algebra", "compiler", "postgres", "store", "refresh", "service")


@cache
def version_stamp() -> str:
    """Return the version of the planner: a digest of its code, so that any change of it makes plans
    stale.
    """
    found = hashlib.sha256(version("sqlglot").encode())
    files = [
        file for package in _PLANNERS for file in _files(resources.files(f"millstream.{package}"))
    ]
    for file in sorted(files, key=str):
        if file.name.endswith((".py", ".sql")):
            found.update(file.read_bytes())
    return found.hexdigest()[:32]


def _files(directory: Traversable) -> Iterator[Traversable]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _files(entry)
        else:
            yield entry


@on_large_stack
def plan_query(
    conn: Connection,
    query: str,
    *,
    qualified: bool = False,
    keys: Mapping[int, Sequence[str]] | None = None,
    terms: Terms = OWN,
) -> QueryPlan:
    """Plan a query, given as the user wrote it or, if `qualified`, as its canonical text.

    Raise a refusal with its place in the query if it cannot be maintained. `keys` names, by oid,
    the key to use of a source that has several; it is ignored if it is no key any more.
    """
    asked = _Asked(query, qualified, keys or {}, terms)
    try:
        return _plan(conn, asked)
    except QueryError as error:
        if error.facts.get("position") is None:
            _find_position(conn, asked, error)
        raise
    except (
        MillstreamError,
        RecursionError,
        psycopg.OperationalError,
        psycopg.errors.InsufficientPrivilege,
    ):
        raise
    except Exception as error:
        log.error(
            "planning failed", query=query, traceback="".join(traceback.format_exception(error))
        )
        raise PlanningFailed.at(noted_part(error), error) from error


@dataclass(frozen=True)
class _Asked:
    """The query to plan, and how."""

    query: str
    qualified: bool
    keys: Mapping[int, Sequence[str]]
    terms: Terms
    placed: bool = False
    """Parse it with the places of its nodes in the user's text, for a refusal to point at: slower.
    """

    def written(self, canonical: Canonical) -> exp.Expression | None:
        """Return the syntax tree of its canonical text with places; None if they are not wanted."""
        return position.parse_canonical(canonical.text, self.query) if self.placed else None


def _plan(conn: Connection, asked: _Asked) -> QueryPlan:
    query, settings = asked.query, asked.terms.settings
    with queries.rolled_back(conn), session_settings.under(conn, without_styles(settings)):
        canonical = without_row_ids(conn, _read(conn, asked))
        expanded = expand_whole_rows(conn, canonical)
        with queries.rolled_back(conn):
            view = queries.temporary_view(conn, expanded.text)
            found, names = (
                definition_digests.digests_under(conn, view),
                query_names.of_view(conn, view),
            )
        upstreams = upstreams_under(conn, canonical.text)
        # First: planning evaluates functions of constants, the server's planner does too.
        foreign_code.check_under(
            conn, found, converted_types(expanded.tree), asked.terms.trusted_roles
        )
        written = asked.written(expanded)
        called = _check(conn, expanded, written, asked)
        _check_columns(canonical)
        _check_names([column.name for column in canonical.columns], written)
        catalog = _Catalog(conn, called, asked)
        relation = build_relation(written or parsed(expanded.text), catalog)
        _check_sources(relation)
        blocks = split_into_blocks(relation, canonical.columns, _Server(conn, settings))
        needed = session_settings.chosen(conn, catalog.settings, settings)
        # Last: what is refused for its form has a hint, the server's own complaint has none.
        _check_rights(conn, canonical, query, asked.terms)
    _parse_expressions(blocks)
    return QueryPlan(query, canonical, relation, blocks, found, upstreams, names, needed)


def _read(conn: Connection, asked: _Asked) -> Canonical:
    """Let the server read the query, with all settings of the session that asks."""
    with session_settings.under(conn, asked.terms.settings):
        if asked.qualified:
            return queries.reread(conn, asked.query)
        return queries.canonical(conn, asked.query)


def _find_position(conn: Connection, asked: _Asked, refusal: QueryError) -> None:
    """Plan a refused query again, with the places of its nodes, and give the refusal the place
    where it is raised.
    """
    try:
        _plan(conn, replace(asked, placed=True))
    except QueryError as error:
        if error.message == refusal.message:
            refusal.about(error.node)
            position.add_position(refusal, asked.query)
    except Exception as error:
        # The refusal itself is known: what fails while its place is looked for must not hide it.
        log.warning("the place of a refusal was not found", query=asked.query, error=repr(error))


def _parse_expressions(blocks: Sequence[Block]) -> None:
    """Parse the expressions of all inputs here, on the large stack: a refresh asks what they refer
    to.
    """
    for input_ in (input_ for block in blocks for input_ in block.inputs()):
        input_.used()
        for leaf in input_.leaves:
            _ = leaf.expr.as_ref


def _check_rights(conn: Connection, canonical: Canonical, query: str, terms: Terms) -> None:
    """Check that the owner may read all of the query; raise BadQuery if the server cannot plan it."""
    try:
        owner_rights.check(conn, canonical.text, terms.owner or owner_rights.current_role(conn))
    except psycopg.errors.LockNotAvailable as error:
        raise LockNotHad.by_reader("what the query reads") from error
    except psycopg.Error as error:
        if failure("", code_of(error), "").retryable:
            raise
        raise queries.rejected(query, 0, error) from error


@dataclass(frozen=True)
class _Called:
    """The names of the aggregates and of the set-returning functions that a query calls."""

    aggregates: frozenset[str]
    sets: Mapping[str, bool]
    """Each set-returning function, with True if it returns rows of several columns."""
    settings: frozenset[str]
    """The session settings that the results of all calls depend on."""

    def __or__(self, other: _Called) -> _Called:
        return _Called(
            self.aggregates | other.aggregates,
            {**self.sets, **other.sets},
            self.settings | other.settings,
        )


def _check(
    conn: Connection, canonical: Canonical, written: exp.Expression | None, asked: _Asked
) -> _Called:
    """Raise Unsupported for calls and constructs that cannot be maintained; return the special
    functions called.
    """
    check.check(canonical.tree, written)
    functions = queries.functions(conn, canonical.tree)
    settings = set[str]()
    if clock.reads_clock(canonical.tree, [one.name for one in functions]):
        settings |= clock.settings(canonical.tree, [one.name for one in functions])
    for function in functions:
        depends_on = _settings_of(function)
        if depends_on is None and function.name in asked.terms.assumed:
            depends_on = volatility.ASSUMED
        if depends_on is None:
            _check_function(conn, function, canonical, written)
        settings |= depends_on or set()
    _check_constructs(canonical, written)
    json, text, xml = _printed_types(canonical, functions)
    foreign_code.check_under(conn, {}, queries.with_parts(conn, json), asked.terms.trusted_roles)
    settings |= _settings_of_printed(conn, json, canonical, json=True)
    settings |= _settings_of_printed(conn, text | xml, canonical, json=False)
    settings |= volatility.of_constructs(canonical.tree)
    _check_faithful(conn, canonical)
    return _Called(
        frozenset(function.called for function in functions if function.aggregate),
        {function.called: function.composite for function in functions if function.set},
        frozenset(settings),
    )


def _settings_of(function: queries.Function) -> frozenset[str] | None:
    """Return the session settings on which a call depends, but for the arguments that it prints;
    None if it depends on something else.
    """
    own = function.schema == "pg_catalog"
    if function.volatility == "immutable":
        return volatility.CALLED_IMMUTABLE.get(function.called, frozenset()) if own else frozenset()
    if not own or function.volatility != "stable":
        return None
    examined = volatility.PRINTING | volatility.FROM_JSON
    if function.called in examined or function.name in clock.CLOCK_FUNCTIONS:
        return frozenset()
    return volatility.settings_of(function.name)


def _printed_types(
    canonical: Canonical, functions: Sequence[queries.Function]
) -> tuple[set[int], set[int], set[int]]:
    """Return the types of the values that a query prints as JSON, as text, and as XML.

    Whoever owns a type may define a cast to json of it, which is run where a value becomes JSON.
    """
    to_json = [one.oid for one in functions if one.called in volatility.TO_JSON]
    to_text = [one.oid for one in functions if one.called in volatility.TO_TEXT]
    json, xml = volatility.types_in_constructs(canonical.tree)
    json |= volatility.printed_types(canonical.tree, to_json)
    return json, volatility.printed_types(canonical.tree, to_text), xml


def _settings_of_printed(
    conn: Connection, types: set[int], canonical: Canonical, *, json: bool
) -> frozenset[str]:
    """Return the session settings on which the text of values of these types depends."""
    if volatility.is_unknown(types):
        return volatility.PRINTED
    outputs = queries.output_functions(conn, types)
    for output in outputs:
        if _settings_of(output) is None:
            _check_function(conn, output, canonical, None)
    return volatility.of_printed([output.called for output in outputs], json=json)


def _check_sources(relation: Relation) -> None:
    if not any(
        isinstance(node, Scan) and isinstance(node.table, SourceTable) for node in relation.walk()
    ):
        raise Unsupported.construct(
            "a query without a table",
            reason="It has no source that could change.",
            way_round="Make it a view.",
        )


def _check_columns(canonical: Canonical) -> None:
    if not canonical.columns:
        raise Unsupported.construct(
            "a query without columns",
            reason="A stream table has at least one column.",
            way_round="Select a constant: SELECT 1 AS one FROM ...",
        )


def _check_names(names: Sequence[str], written: exp.Expression | None = None) -> None:
    """Raise Unsupported for column names that begin with __ms_: Millstream adds columns of such
    names.
    """
    for name in names:
        if name.lower().startswith("__ms_"):
            raise Unsupported.construct(
                f'a column named "{name}"',
                reason="Names that begin with __ms_ are reserved for Millstream's own columns.",
                way_round="Give the column another name.",
                node=_column_named(name, written) if written else None,
            )


def _column_named(name: str, query: exp.Expression) -> exp.Expr | None:
    """Return the expression of a query's select list that has this name."""
    items = query.selects if isinstance(query, exp.Query) else []
    return next((item for item in items if item.alias_or_name == name), None)


def _check_function(
    conn: Connection,
    function: queries.Function,
    canonical: Canonical,
    written: exp.Expression | None,
) -> None:
    if function.volatility == "immutable":
        return
    hint = for_function(
        function.name, function.volatility, built_in=function.schema == "pg_catalog"
    )
    error = Volatile.function(function.name, function.volatility, hint)
    raise error.about(find_call(conn, function, canonical, written)) if written else error


def _check_constructs(canonical: Canonical, written: exp.Expression | None) -> None:
    """Raise a refusal of a path of SQL/JSON whose result does not depend on the operands alone."""
    if any(node.kind == "JSONEXPR" for node in node_tree.walk(canonical.tree)):
        check_paths(written or parsed(canonical.text))


def _check_faithful(conn: Connection, canonical: Canonical) -> None:
    """Our parser must read the query as the server does: print what it read, and let the server
    compare.

    Its operators too: NULLIF or USING over a type of an extension means another one where the path
    is ours.
    """
    try:
        again = queries.reread(conn, printed(_name_casts(parsed(canonical.text))))
    except (BadQuery, SqlglotError) as error:
        raise _unfaithful(str(error)) from error
    read = comparable_text(again.text)
    if read not in _meant(conn, canonical):
        meant = comparable_text(canonical.text)
        differs = next(
            (n for n, (one, other) in enumerate(zip(read, meant, strict=False)) if one != other), 0
        )
        part = slice(max(differs - 30, 0), differs + 60)
        raise _unfaithful(f"PostgreSQL has: {meant[part]} ... It was read as: {read[part]} ...")
    if again.operators != canonical.operators:
        raise _unfaithful(
            "An operator of an extension is not the one that is found without the search_path."
        )


def _meant(conn: Connection, canonical: Canonical) -> Iterator[str]:
    """Yield the texts that mean the query: its canonical text, and what the server makes of that.

    They differ where the server reads its own text in another form: it casts the elements of
    `(ARRAY['a'::varchar])::text[]` one by one.
    """
    yield comparable_text(canonical.text)
    yield comparable_text(queries.reread(conn, canonical.text).text)


def _unfaithful(where: str) -> Unsupported:
    return Unsupported.construct(
        "this query's syntax",
        reason=f"It could not be read without changing its meaning. {where}",
        way_round="Write that part in another way (a cast of a varchar to text often helps), and please report it.",
    )


def _name_casts(tree: exp.Expression) -> exp.Expression:
    """Name the columns of casts `?column?`, as the server names a column without a name.

    The server prints the 'x' of a recursive term as 'x'::text, and would name that "text".
    """
    for select in list(tree.find_all(exp.Select)):
        for item in select.expressions:
            if isinstance(item, exp.Cast):
                item.replace(exp.alias_(item.copy(), "?column?", quoted=True))
    return tree


@on_large_stack
def state_sql(
    block: Block, names: BlockNames, *, inner: bool, temporary: bool = False
) -> list[sql.Composed]:
    """Return the statements that create the state of a block, its materialized rows, and the view
    of its rows.
    """
    match block:
        case WindowBlock(head=head):
            return [
                *state.create_sql(block, head, names),
                *materialized_rows.create_sql(block, names),
            ]
        case AggregateBlock(head=head):
            shown = [state.shown_sql(block, names, temporary=temporary)] if inner else []
            return [*state.create_sql(block, head, names), *shown]
        case MaterializedBlock():
            return materialized_rows.create_sql(block, names)
    return []


class _Server:
    """A `PlanningServer` that asks PostgreSQL, in a transaction that is rolled back."""

    def __init__(self, conn: Connection, settings: Mapping[str, str]) -> None:
        self.conn = conn
        self.settings = settings
        self.names = PlanningNames(0, "", "")

    def types(
        self, expressions: Sequence[Expr], scans: Sequence[Scan]
    ) -> tuple[PgType, ...] | Unsupported:
        if not expressions:
            return ()
        columns = [
            aliased(Printed(one.sql), f"x{number}") for number, one in enumerate(expressions)
        ]
        tables = [from_item(scan, Printed(scan.table.relation)) for scan in scans]
        query = sql.SQL("SELECT {} FROM {}").format(listed(columns), listed(tables))
        found = queries.columns_of(self.conn, query.as_string())
        return found if isinstance(found, Unsupported) else tuple(column.type for column in found)

    def values(self, expressions: Sequence[str]) -> tuple[Constant, ...] | Unsupported:
        try:
            with self.conn.transaction(), session_settings.under(self.conn, self.settings):
                query = sql.SQL("SELECT {}").format(listed(map(Printed, expressions)))
                row = self.conn.execute(query).fetchone()
        except psycopg.Error as error:
            return Unsupported.construct(
                "an expression over the optional side of an outer join",
                reason=f"Where that side is missing it cannot be computed: {error.diag.message_primary}.",
                way_round="Write it so that it has a value for NULLs.",
            )
        assert row is not None
        return tuple(row)

    def declare(self, block: Block) -> BlockRows:
        names = self.names.at(block.position)
        # A block that was tried and given up may have stood here before.
        self.conn.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(names.shown))
        drop = sql.SQL("DROP TABLE IF EXISTS {}, {}")
        self.conn.execute(drop.format(names.state, names.materialized))
        for statement in state_sql(block, names, inner=True, temporary=True):
            self.conn.execute(statement)
        shown = names.shown.as_string()
        row = self.conn.execute("SELECT %s::regclass::oid::int8", (shown,)).fetchone()
        assert row is not None
        table = relations.table(self.conn, row[0])
        columns = tuple(column for column in table.columns if column.name not in (ROW, PART))
        return BlockRows(columns, block=block.position, relation_name=table.name)


def _but_ours(key: tuple[str, ...]) -> tuple[str, ...]:
    return () if ROW_ID in key else key


class _Catalog:
    """A `CatalogLookup` that asks PostgreSQL."""

    def __init__(self, conn: Connection, called: _Called, asked: _Asked) -> None:
        self.conn = conn
        self.asked = asked
        self._called = called
        self._known: dict[tuple[str, str], Table | str] = {}

    def table(self, schema: str, name: str) -> Table | str:
        """Return a table, or the canonical text of a view; the server is asked once for each."""
        if (schema, name) not in self._known:
            self._known[schema, name] = self._found(schema, name)
        return self._known[schema, name]

    def _found(self, schema: str, name: str) -> Table | str:
        schema = schema or queries.implicit_schema(self.conn, name)
        oid, kind = queries.relation_kinds(self.conn, [(schema, name)])[schema, name]
        if kind == "v":
            view = expand_whole_rows(self.conn, queries.view(self.conn, oid))
            # Its text is read again, and a conversion in it may then mean another cast.
            foreign_code.check_under(
                self.conn, {}, converted_types(view.tree), self.asked.terms.trusted_roles
            )
            self._called |= _check(self.conn, view, None, self.asked)
            return view.text
        relations.check_source(self.conn, oid)
        table = relations.table(self.conn, oid, self.asked.keys.get(oid, ()))
        if any(one.relid == oid for one in stream_tables.every(self.conn)):
            # What tells its rows apart is ours, not the query's.
            return replace(
                table,
                columns=tuple(c for c in table.columns if c.name != ROW_ID),
                key=_but_ours(table.key),
            )
        _check_names([column.name for column in table.columns])
        return table

    def types(self, select: str, node: object = None) -> tuple[PgType, ...]:
        columns = queries.columns_of(self.conn, select)
        if isinstance(columns, Unsupported):
            raise columns.about(node)
        return tuple(column.type for column in columns)

    @property
    def settings(self) -> frozenset[str]:
        """The session settings that the query and the views read so far depend on."""
        return self._called.settings

    def aggregates(self) -> frozenset[str]:
        return self._called.aggregates

    def sets(self) -> Mapping[str, bool]:
        return self._called.sets
