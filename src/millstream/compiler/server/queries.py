"""Ask PostgreSQL what a query means.

The query becomes a temporary view, in a transaction that is rolled back; the server then tells the
output's names and types, the analysed tree, and its own text of the query with every name
resolved, every `*` expanded and every cast written out. That canonical text is what we parse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from millstream.algebra.table import quoted
from millstream.algebra.types import Column
from millstream.compiler.server import node_tree, position, volatility
from millstream.compiler.server.viewdef import readable_text
from millstream.compiler.workaround import for_rejected
from millstream.errors import BadQuery, BadSetting, LockNotHad, NoRights, Unsupported
from millstream.postgres import relations
from millstream.postgres.connection import Connection, users_path
from millstream.postgres.failures import code_of, failure

_PREFIX = "CREATE TEMPORARY VIEW pg_temp.__millstream_query AS "


@dataclass(frozen=True)
class Canonical:
    """A query as the server understands it."""

    text: str
    columns: tuple[Column, ...]
    tree: node_tree.Value

    @property
    def operators(self) -> list[int]:
        """The operators of the query, in order."""
        return [number for node in node_tree.walk(self.tree) if (number := node.number("opno"))]


@dataclass(frozen=True)
class Function:
    """A function that a query calls."""

    oid: int
    schema: str
    name: str
    """As a call is written: `lower(text)`, with the schema where that is not the server's own."""
    volatility: str
    aggregate: bool
    set: bool
    """It may return several rows."""
    composite: bool
    """What it returns has columns of its own."""

    @property
    def called(self) -> str:
        """Its name as the server writes it in a call."""
        return self.name.split("(")[0].replace('"', "")


@contextmanager
def rolled_back(conn: Connection) -> Iterator[None]:
    """Run the body in a transaction or savepoint that is rolled back at the end."""
    with conn.transaction(force_rollback=True):
        yield


def canonical(conn: Connection, query: str) -> Canonical:
    """Return the server's analysis of the user's query; raise BadQuery with the place if it rejects
    the query.
    """
    with users_path(conn):
        return reread(conn, query)


def reread(conn: Connection, query: str) -> Canonical:
    """Analyse a query whose names are qualified: a canonical text, or a text of our own."""
    with rolled_back(conn):
        return _described(conn, temporary_view(conn, query))


def view(conn: Connection, oid: int) -> Canonical:
    """Analyse the query of an existing view."""
    with rolled_back(conn):
        return _described(conn, oid)


def columns_of(conn: Connection, select: str) -> tuple[Column, ...] | Unsupported:
    """Return names, types and collations of the columns of a query of our own; the refusal of an
    anonymous row.
    """
    try:
        with rolled_back(conn):
            return relations.columns(conn, temporary_view(conn, select))
    except BadQuery as error:
        if error.facts.get("sqlstate") == _PSEUDO_TYPE:
            return _anonymous_row(error.message)
        raise


# invalid_table_definition: of a query, a column whose type no table can have.
_PSEUDO_TYPE = "42P16"


def _anonymous_row(message: str) -> Unsupported:
    return Unsupported.construct(
        "an anonymous row, ROW(...), as a column of a subquery on the null-extended side of an outer join or below "
        "UNION ALL",
        reason=f"No column of a table has the type of such a row: {message}.",
        way_round="Cast the row to a composite type of yours (CREATE TYPE), or select its columns one by one.",
    )


def temporary_view(conn: Connection, query: str) -> int:
    """Create a temporary view and return its oid; the caller rolls back."""
    _create_view(conn, query)
    oid: int = conn.execute(
        "SELECT 'pg_temp.__millstream_query'::pg_catalog.regclass::pg_catalog.oid"
    ).fetchall()[0][0]
    return oid


def _create_view(conn: Connection, query: str) -> None:
    body = query.strip().rstrip(";").strip()
    offset = query.find(body)
    try:
        # The user's own query: the only text from outside that becomes a statement, and only as a view.
        # `binary` makes psycopg use the extended protocol, which takes one statement and no more.
        # In a savepoint: which rights are lacking is asked after it.
        with conn.transaction():
            conn.execute(_PREFIX.encode() + body.encode(), binary=True)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _rights(conn, query, error) from error
    except psycopg.errors.LockNotAvailable as error:
        raise LockNotHad.by_reader("what the query reads") from error
    except psycopg.Error as error:
        if failure("", code_of(error), "").retryable:
            # Trouble of the server that passes, and no fault of the query.
            raise
        raise rejected(query, offset, error) from error


def _rights(conn: Connection, query: str, error: psycopg.Error) -> NoRights:
    """Name the rights that lack: to make a temporary view, and to use the schemas that the query
    names.
    """
    message = error.diag.message_primary or str(error)
    role, database, temporary, schemas = conn.execute(_LACKING).fetchall()[0]
    if not temporary:
        grant = f"GRANT TEMPORARY ON DATABASE {quoted(database)} TO {quoted(role)};"
        return NoRights.to("create temporary views here", role=role, grant=grant, reason=message)
    named = [schema for schema in schemas if schema in query or schema in message]
    grants = [f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {quoted(role)};" for schema in named]
    way = " ".join(grants) or f"grant the right that is named above to {quoted(role)}."
    return NoRights.to("read what the query reads", role=role, grant=way, reason=message)


_LACKING = """
SELECT current_user::pg_catalog.text, pg_catalog.current_database()::pg_catalog.text,
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY'),
    ARRAY(
        SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_namespace AS n
        WHERE NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
    )
"""


def rejected(query: str, offset: int, error: psycopg.Error) -> BadQuery:
    """Return the error for a query that the server refuses."""
    diag = error.diag
    where = None
    if diag.statement_position is not None and int(diag.statement_position) > len(_PREFIX):
        where = int(diag.statement_position) - len(_PREFIX) + offset
    message = diag.message_primary or str(error)
    if "multiple commands" in message:
        message = "the query must be one statement"
    return BadQuery.rejected(
        message,
        sqlstate=diag.sqlstate or "",
        detail=diag.message_detail or "",
        hint=diag.message_hint or for_rejected(message),
        position=where,
        excerpt=position.excerpt(query, where),
    )


def _described(conn: Connection, oid: int) -> Canonical:
    conn.execute(_NEUTRAL)
    row = conn.execute(
        "SELECT pg_get_viewdef(%s::oid, false), "
        "(SELECT ev_action::text FROM pg_rewrite WHERE ev_class = %s AND ev_type = '1')",
        (oid, oid),
    ).fetchone()
    assert row is not None
    return Canonical(
        readable_text(row[0].strip().rstrip(";")),
        relations.columns(conn, oid),
        node_tree.parse(row[1]),
    )


# An empty path makes the server qualify every name that is not its own. Constants are printed so
# that every session reads the same values; only money has no such text.
_NEUTRAL = (
    "SET LOCAL search_path = pg_catalog; SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, MDY';"
    " SET LOCAL IntervalStyle = 'postgres'; SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'"
)


def functions(conn: Connection, tree: node_tree.Value) -> list[Function]:
    """Return every function that a query calls: by name, operator, cast or aggregate."""
    oids, operators, outputs, inputs = set[int](), set[int](), set[int](), set[int]()
    for node in node_tree.walk(tree):
        oids |= {node.number(name) for name in ("funcid", "opfuncid", "aggfnoid", "winfnoid")}
        operators.add(node.number("opno"))
        if node.kind == "COERCEVIAIO":
            argument = node.fields.get("arg")
            outputs |= (
                volatility.types_of(argument) if isinstance(argument, node_tree.Node) else {0}
            )
            inputs.add(node.number("resulttype"))
    inputs |= element_types(conn, node_tree.extracted_types(tree))
    return _looked_up(conn, oids, operators, outputs, inputs)


def element_types(conn: Connection, types: set[int]) -> set[int]:
    """Return types with each array type replaced by that of its elements: JSON has its elements one
    by one.
    """
    rows = conn.execute(
        "SELECT CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE t.oid END::int8 "
        "FROM pg_catalog.pg_type AS t WHERE t.oid = ANY(%s::oid[])",
        (list(types),),
    )
    return {number for (number,) in rows} if types else set()


def output_functions(conn: Connection, types: set[int]) -> list[Function]:
    """Return the functions that print values of these types, and of their parts."""
    return _looked_up(conn, set(), set(), types, set()) if types else []


def _looked_up(
    conn: Connection, oids: set[int], operators: set[int], outputs: set[int], inputs: set[int]
) -> list[Function]:
    rows = conn.execute(
        _USED
        + """
        SELECT p.oid::int8, n.nspname, p.oid::regprocedure::text, p.provolatile, p.prokind = 'a',
               p.proretset, t.typtype IN ('c', 'p') AND t.typname !~ '^any'
        FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
        JOIN pg_catalog.pg_type AS t ON t.oid = p.prorettype
        WHERE p.oid = ANY(%(oids)s::oid[])
           OR p.oid IN (SELECT oprcode FROM pg_catalog.pg_operator WHERE oid = ANY(%(operators)s::oid[]))
           OR p.oid IN (
               SELECT CASE WHEN u.printed THEN y.typoutput ELSE y.typinput END
               FROM used AS u JOIN pg_catalog.pg_type AS y ON y.oid = u.type
           )
        ORDER BY 3
        """,
        {
            "oids": list(oids),
            "operators": list(operators),
            "outputs": list(outputs),
            "inputs": list(inputs),
        },
    ).fetchall()
    volatility = {"i": "immutable", "s": "stable", "v": "volatile"}
    return [Function(row[0], row[1], row[2], volatility[row[3]], *row[4:]) for row in rows]


_USED = """
WITH RECURSIVE used (type, printed) AS (
    SELECT oid, true FROM pg_catalog.pg_type WHERE oid = ANY(%(outputs)s::oid[])
    UNION
    SELECT oid, false FROM pg_catalog.pg_type WHERE oid = ANY(%(inputs)s::oid[])
    UNION
    SELECT part.type, u.printed
    FROM used AS u
    JOIN pg_catalog.pg_type AS t ON t.oid = u.type
    CROSS JOIN LATERAL (
        SELECT t.typelem WHERE t.typcategory = 'A'
        UNION ALL
        SELECT t.typbasetype WHERE t.typtype = 'd'
        UNION ALL
        SELECT r.rngsubtype FROM pg_catalog.pg_range AS r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
        UNION ALL
        SELECT a.atttypid FROM pg_catalog.pg_attribute AS a
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS part (type)
)
"""
"""The types that are printed or read, and their parts."""


def named_functions(conn: Connection, names: Sequence[str]) -> list[Function]:
    """Return the functions of these names, found along the user's search_path: with the types of
    their arguments where there are several.
    """
    with users_path(conn):
        oids = [oid for (oid,) in conn.execute(_FUNCTIONS_NAMED, (list(names),))]
    found = {one.oid: one for one in _looked_up(conn, set(oids) - {None}, set(), set(), set())}
    return [
        found[oid] if oid in found else _missing(name)
        for oid, name in zip(oids, names, strict=True)
    ]


_FUNCTIONS_NAMED = """
SELECT coalesce(
    CASE WHEN n LIKE '%%(%%' THEN pg_catalog.to_regprocedure(n)::pg_catalog.oid END,
    CASE WHEN n NOT LIKE '%%(%%' THEN pg_catalog.to_regproc(n)::pg_catalog.oid END
)::pg_catalog.int8
FROM pg_catalog.unnest(%s::pg_catalog.text[]) AS n
"""


def _missing(name: str) -> Function:
    raise BadSetting.of(
        "assume_immutable",
        name,
        "a function, with the types of its arguments if there are several: shop.f(integer)",
    )


def with_parts(conn: Connection, types: set[int]) -> set[int]:
    """Return these types and those of their elements, fields and bounds."""
    query = _USED + "SELECT type::int8 FROM used"
    rows = conn.execute(query, {"outputs": list(types), "inputs": []}).fetchall() if types else []
    return {oid for (oid,) in rows}


def relation_kinds(
    conn: Connection, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, str]]:
    """Return the oid and relkind of relations, by schema and name."""
    rows = conn.execute(
        """
        SELECT n.nspname, c.relname, c.oid::int8, c.relkind::text
        FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        JOIN unnest(%s::text[], %s::text[]) AS w (schema, name) ON w.schema = n.nspname AND w.name = c.relname
        """,
        ([schema for schema, _ in names], [name for _, name in names]),
    ).fetchall()
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def implicit_schema(conn: Connection, name: str) -> str:
    """Return the schema of a relation that the server prints without one: the temporary schema, or
    pg_catalog.
    """
    row = conn.execute(
        """
        SELECT n.nspname
        FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relname = %s AND (n.oid = pg_my_temp_schema() OR n.nspname = 'pg_catalog')
        ORDER BY n.oid = pg_my_temp_schema() DESC
        """,
        (name,),
    ).fetchone()
    return str(row[0]) if row else ""
