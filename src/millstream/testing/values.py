"""Values of every type that a source may have, each as text that PostgreSQL reads; odd ones first
of all.
"""

from __future__ import annotations

from psycopg import errors, sql

from millstream.postgres.connection import Connection

TYPES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "numeric": ["1.0", "1.00", "NaN", "Infinity", "-Infinity", "1e-20", "9" * 60],
    "numeric(12,2)": ["1.5", "-9999999999.99", "NaN"],
    "numeric(4,-2)": ["123456"],
    "real": ["1.1", "NaN", "-Infinity", "-0"],
    "double precision": ["1.1", "NaN", "Infinity", "-0", "1e-308"],
    "text": ["", "a", "Zürich 注文", "x" * 10000],
    "varchar(20)": ["", "twenty characters   "],
    "char(5)": ["a", "abcde", ""],
    "bpchar": ["a  ", "", "abcdefghi "],
    '"char"': ["x"],
    "name": ["n"],
    "date": ["2024-02-29", "infinity", "-infinity", "0044-03-15 BC", "20000-01-01"],
    "time": ["24:00:00", "00:00:00.000001"],
    "time(0)": ["10:20:30"],
    "timetz": ["10:20:30+05:30", "24:00:00-12"],
    "timestamp": ["2024-02-29 12:00:00.123456", "infinity", "-infinity", "4713-01-01 BC"],
    "timestamptz": ["2024-02-29 12:00:00.123456+02", "infinity", "-infinity"],
    "interval": ["1 year -2 days 03:04:05.6", "-1 mon"],
    "interval day to second": ["5 days 01:02:03"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "bytea": ["\\x", "\\x00ff"],
    "json": ['{"b": 1,  "a": [null]}', "null"],
    "jsonb": ['{"b": 1, "a": [null]}', "null"],
    "xml": ["<a>1</a>"],
    "money": ["12.34"],
    "integer[]": ["{}", "{1,NULL,3}", "[2:3]={1,2}", "{{1,2},{3,4}}"],
    "numeric(6,2)[]": ["{1.5,NULL}"],
    "text[]": ['{"a,b","\\"",NULL,""}'],
    "mood": ["sad", "happy"],
    "mood[]": ["{sad,NULL}"],
    "positive": ["1", "12.50"],
    "positive[]": ["{1,2.5}"],
    "not_empty": ["x"],
    "address": ['("High St, 1",12345)', "(,)"],
    "address[]": ['{"(\\"High St\\",1)"}'],
    "inet": ["192.168.0.1/24", "::1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "int4range": ["[1,5)", "empty", "(,)"],
    "tstzrange": ["[2024-01-01,2024-02-01)"],
    "int4multirange": ["{[1,2),[5,7)}"],
    "bit(3)": ["101"],
    "bit varying": ["10101", ""],
    "bit varying(8)": ["1"],
    "point": ["(1,2)"],
    "box": ["(2,2),(1,1)"],
    "polygon": ["((0,0),(1,1),(1,0))"],
    "tsvector": ["'a':1 'b':2"],
    "tsquery": ["'a' & 'b'"],
    "pg_lsn": ["16/B374D848"],
    "oid": ["4294967295"],
    "xid8": ["12345678901"],
    "regclass": ["pg_class"],
    "pg_snapshot": ["10:20:12"],
    "citext": ["AbC"],
    "hstore": ['"a"=>"1", "b"=>NULL'],
    "vector(3)": ["[1,2,3]"],
    'text COLLATE "C"': ["a", "B"],
}

DEFINITIONS = """
    CREATE TYPE mood AS ENUM ('sad', 'happy');
    CREATE DOMAIN positive_base AS numeric(8,2) CHECK (VALUE > 0);
    CREATE DOMAIN positive AS positive_base NOT NULL;
    CREATE DOMAIN not_empty AS text CHECK (VALUE <> '');
    CREATE TYPE address AS (street text, zip int);
"""


def declare(conn: Connection) -> dict[str, list[str]]:
    """Declare the types of this server.

    What was not built into it, or lies not beside it, is left out.
    """
    conn.execute(DEFINITIONS)
    there = {name for (name,) in conn.execute("SELECT name FROM pg_available_extensions")}
    for extension in {"citext", "hstore", "vector"} & there:
        conn.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(extension)))
    return {name: values for name, values in TYPES.items() if _known(conn, name, values[0])}


def _known(conn: Connection, name: str, value: str) -> bool:
    try:
        conn.execute(f"SELECT CAST(%s AS {name.split(' COLLATE')[0]})".encode(), (value,))
    except (errors.FeatureNotSupported, errors.UndefinedObject):
        assert name in ("xml", "vector(3)"), f"{name} is built in everywhere"
        return False
    return True
