"""Every operator, type, function and aggregate that the server has is printed as it was read."""

from __future__ import annotations

import pytest
from sqlglot.errors import SqlglotError

from millstream.algebra.dialect import parsed, printed
from millstream.postgres.connection import Connection

# Arguments as NULL of their types; what is polymorphic, or has no values, is left out.
ARGUMENTS = """
    (SELECT string_agg('NULL::' || format_type(given, NULL), ', ' ORDER BY number)
     FROM unnest(proargtypes) WITH ORDINALITY AS arguments (given, number))
"""
CONCRETE = """
    NOT EXISTS (SELECT FROM unnest(proargtypes || prorettype) AS used JOIN pg_type AS t ON t.oid = used
                WHERE t.typtype = 'p')
"""
OPERATORS = """
    SELECT CASE WHEN oprkind = 'b'
        THEN format('SELECT (NULL::%s %s NULL::%s) AS v', oprleft::regtype, oprname, oprright::regtype)
        ELSE format('SELECT (%s NULL::%s) AS v', oprname, oprright::regtype) END
    FROM pg_operator WHERE NOT EXISTS (SELECT FROM pg_type AS t WHERE t.oid IN (oprleft, oprright) AND t.typtype = 'p')
"""
TYPES = """
    SELECT format('SELECT NULL::%1$s AS v, NULL::%1$s[] AS w', format_type(oid, NULL))
    FROM pg_type WHERE typtype NOT IN ('p', 'c') AND typarray <> 0
"""
FUNCTIONS = f"""
    SELECT format('SELECT %I(%s) AS v', proname, {ARGUMENTS})
    FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset
    AND provolatile = 'i' AND pronargs > 0 AND provariadic = 0 AND {CONCRETE}
"""
AGGREGATES = f"""
    SELECT format('SELECT %I(%s) AS v', proname, {ARGUMENTS})
    FROM pg_proc JOIN pg_aggregate ON aggfnoid = pg_proc.oid
    WHERE aggkind = 'n' AND pronargs > 0 AND provariadic = 0 AND {CONCRETE}
"""


# The query's text from the server; NULL where there can be no view of it. The error gives its locks
# back.
AS_PRINTED = """
    CREATE FUNCTION pg_temp.as_printed(statement text) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE 'CREATE TEMP VIEW looked_at AS ' || statement;
        RAISE EXCEPTION USING ERRCODE = 'ZZ001', MESSAGE = pg_get_viewdef('looked_at'::regclass);
    EXCEPTION
        WHEN SQLSTATE 'ZZ001' THEN RETURN sqlerrm;
        WHEN OTHERS THEN RETURN NULL;
    END $$
"""


@pytest.mark.parametrize(
    ("statements", "least"),
    [
        pytest.param(OPERATORS, 700, id="operators"),
        pytest.param(TYPES, 60, id="types"),
        pytest.param(FUNCTIONS, 1000, id="functions"),
        pytest.param(AGGREGATES, 80, id="aggregates"),
    ],
)
def test_everything_that_the_server_has_is_printed_as_it_was_read(
    conn: Connection, statements: str, least: int
) -> None:
    """The classes: operators that sqlglot does not know, "bit" taken for bit(1), `bit varying`
    taken for an alias.
    """
    conn.execute(AS_PRINTED.encode())
    before = as_printed(conn, [str(row[0]) for row in conn.execute(statements.encode()).fetchall()])
    known = {statement: text for statement, text in before.items() if text is not None}
    again = {statement: reprinted(text) for statement, text in known.items()}
    after = as_printed(conn, list(again.values()))
    wrong = {
        statement: after[again[statement]]
        for statement in known
        if after[again[statement]] != known[statement]
    }
    assert wrong == {}
    assert len(known) >= least


def as_printed(conn: Connection, statements: list[str]) -> dict[str, str | None]:
    rows = conn.execute(
        "SELECT s, pg_temp.as_printed(s) FROM unnest(%s::text[]) AS s", (statements,)
    ).fetchall()
    return {str(statement): None if text is None else str(text) for statement, text in rows}


def reprinted(text: str) -> str:
    try:
        return printed(parsed(text))
    except SqlglotError as error:
        return str(error)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a @@@ NULL, @ CASE WHEN a THEN b END",
        "SELECT a ~>=~ b, ?| c, @-@ d",
        'SELECT a OPERATOR("my schema".===) b',
        "SELECT COUNT(*) * 2, -1, *",
        "SELECT '~>=~', \"a@#b\" ~<~ c",
        'SELECT CAST(NULL AS "bit"), CAST(a AS BIT(3)), CAST(b AS varbit(5))',
        'SELECT "bit", "varying" FROM t',
    ],
)
def test_what_is_no_operator_is_none(text: str) -> None:
    assert printed(parsed(text)) == text


def test_a_sign_at_the_end_belongs_to_an_operator_as_postgresql_has_it() -> None:
    assert printed(parsed("SELECT a <-1, b @-1, c *- d")) == "SELECT a < -1, b @- 1, c * -d"
