"""Any immutable expression over one table is read and given back to PostgreSQL word for word.

The server prints the query, we parse and print it again, and the server must find the same query in
it. What our parser would translate (substr to SUBSTRING, x ^ 2 to power) would be refused by that
check, so these are planned in full.
"""

from __future__ import annotations

import pytest

from millstream.algebra.dialect import parsed, printed
from millstream.compiler.server.plan_query import plan_query
from millstream.postgres.connection import Connection

CONDITIONS = """
x IS NOT NULL
NOT (t IS NULL)
ok
NOT ok
ok IS TRUE
ok IS NOT TRUE
ok IS NOT FALSE
(x = 1) = ok
(x > 1) IS NULL
x NOT IN (1, 2)
x BETWEEN 1 AND 2
x NOT BETWEEN SYMMETRIC 2 AND 1
x IS DISTINCT FROM 1
x IS NOT DISTINCT FROM s
x = 1 OR id = 2 AND ok
NOT (x = 1 AND id = 2)
(x, id) = (1, 2)
(x, id) < (1, 2)
x = ANY (ARRAY[1, 2])
x <> ALL (ARRAY[1, 2])
1 = ANY (arr)
t LIKE 'a%'
t NOT LIKE 'a\\_%'
t ILIKE 'a'
t ~ '^a'
t !~ 'a'
t ~* 'a'
t !~* 'a'
t SIMILAR TO 'a|b'
t NOT SIMILAR TO 'a'
t COLLATE "C" < 'a'
'a' < t
t = 'it''s'
t = E'a\\nb\\\\'
t = U&'\\0061'
t || 'x' = 'ax'
x + 1 > 2
- x > 1
x % 2 = 1
x / 2 * 2 = x - (1 - 2)
x ^ 2 > 1
x & 1 = 1
x | 1 = 1
x # 1 = 1
~ x = 1
x << 1 = 2
x >> 1 = 1
n = 1.50
n = -1.5
n = 1e10
n % 2 = 1
f = 1e-5
f = 'NaN'
f = 'Infinity'::float8
x::text = '1'
x::numeric(5,2) = 1
x::float4 = 1
x::int2 = 1
x::boolean
x::oid = 1
t::varchar(3) = 'a'
t::char(3) = 'a'
t::bpchar = 'a'
c = 'ab'
coalesce(t, 'x') = 'x'
nullif(x, 1) = 2
greatest(x, 1) = least(x, 1, id)
CASE WHEN x > 1 THEN 1 ELSE 2 END = 1
CASE x WHEN 1 THEN 2 END = 1
CASE WHEN ok THEN CASE x WHEN 1 THEN 'a' END ELSE t END = 'a'
d = DATE '2020-01-01'
d + 1 > '2020-01-01'
d - DATE '2020-01-01' > 3
d + INTERVAL '1 day' > '2020-01-01'
ts - INTERVAL '1 day 2 hours' < '2020-01-01'
tz > '2020-01-01 00:00:00+00'
tz AT TIME ZONE 'UTC' > '2020-01-01'
timezone('UTC', tz) > '2020-01-01'
extract(year FROM d) = 2020
extract(epoch FROM iv) > 1
date_part('year', d) = 2020
date_trunc('month', ts) = '2020-01-01'
make_date(x, 1, 1) = d
isfinite(d)
age(ts, ts) > '1 day'
iv > INTERVAL '1 mon'
substr(t, 1, 1) = 'a'
substring(t, 1, 2) = 'a'
substring(t FROM 1 FOR 2) = 'a'
substring(t FROM 'a.') = 'a'
left(t, 1) = right(t, 1)
trim(t) = 'a'
trim(LEADING 'x' FROM t) = 'a'
btrim(t, 'x') = ltrim(rtrim(t))
position('a' IN t) = strpos(t, 'a')
overlay(t PLACING 'x' FROM 1 FOR 2) = 'a'
length(t) = char_length(t)
lower(t) = upper(t)
initcap(t) = 'A'
md5(t) = 'a'
replace(t, 'a', 'b') = translate(t, 'a', 'b')
split_part(t, ',', 1) = 'a'
regexp_replace(t, 'a', 'b', 'g') = 'b'
lpad(t, 3, 'x') = rpad(t, 3)
repeat(t, 2) = reverse(t)
starts_with(t, 'a')
ascii(t) = 1
chr(x) = 'a'
to_hex(x) = '1'
round(n, 2) = round(n)
floor(n) = ceil(n)
ceiling(n) = trunc(n, 1)
mod(x, 2) = 1
power(n, 2) = sqrt(n)
ln(n) = log(n)
log(2, n) = exp(n)
sign(n) = abs(x)
div(n, 2) = 1
width_bucket(n, 0, 10, 5) = 1
encode(b, 'hex') = 'aa'
sha256(b) = b
get_byte(b, 0) = 1
j ->> 'a' = 'b'
j -> 'a' -> 'b' IS NULL
j #>> '{a,b}' = 'x'
j @> '{"a": 1}'
j ? 'a'
jsonb_array_length(j) = 1
arr[1] = 2
arr[1:2] = '{1}'
arr && '{1}'
array_length(arr, 1) = cardinality(arr)
arr || 1 = array_append(arr, 1)
u = '00000000-0000-0000-0000-000000000001'
r @> 3
lower(r) = upper(r)
net << '10.0.0.0/8'
host(net) = '10.0.0.1'
hashtext(t) = 1
num_nulls(x, t) = 1
ok IS UNKNOWN
ok IS NOT UNKNOWN
|/ x > 1
@ x > 1
t ^@ 'a'
t ~>=~ 'a'
iv::interval(0) > '1 s'
iv::interval day to second(3) > '1 s'
x::numeric(5,-2) > 1
net <<= '10.0.0.0/8'
"""


LINES = CONDITIONS.strip().splitlines()
# Many at a time: planning asks the server a dozen questions per query.
CHUNKS = [LINES[start : start + 15] for start in range(0, len(LINES), 15)]
chunks = pytest.mark.parametrize("conditions", CHUNKS, ids=[chunk[0] for chunk in CHUNKS])


def filters(conn: Connection, query: str) -> list[str]:
    """The conditions that PostgreSQL is given while reading the one table."""
    (one,) = plan_query(conn, query).block.inputs()
    return [condition.sql for condition in one.filters]


@chunks
def test_conditions_are_read_back(planner: Connection, conditions: list[str]) -> None:
    # Under NOT, so that a condition that is an AND stays one.
    wanted = [f"NOT ({condition})" for condition in conditions]
    assert_same(planner, filters(planner, f"SELECT id FROM t WHERE {' AND '.join(wanted)}"), wanted)


@chunks
def test_they_mean_the_same_when_they_come_from_a_subquery(
    planner: Connection, conditions: list[str]
) -> None:
    """Written into another expression they keep their parentheses."""
    columns = ", ".join(f"({condition}) AS p{place}" for place, condition in enumerate(conditions))
    over = [
        f"NOT q.p{place} AND (q.p{place} = q.ok) IS NOT TRUE" for place in range(len(conditions))
    ]
    query = f"SELECT q.id FROM (SELECT id, ok, {columns} FROM t) AS q WHERE {' AND '.join(over)}"
    wanted = [
        part for one in conditions for part in (f"NOT ({one})", f"(({one}) = ok) IS NOT TRUE")
    ]
    assert_same(planner, filters(planner, query), wanted)


def assert_same(conn: Connection, ours: list[str], theirs: list[str]) -> None:
    """Both lists are one condition to the server."""
    texts = [
        " AND ".join(f"({condition})" for condition in conditions) for conditions in (ours, theirs)
    ]
    one, other = (
        _canonical(conn, f"SELECT id FROM t WHERE {text}").replace(") AND (", ")\nAND (")
        for text in texts
    )
    assert one == other


def _canonical(conn: Connection, query: str) -> str:
    with conn.transaction(force_rollback=True):
        conn.execute(f"CREATE TEMPORARY VIEW v AS {query}".encode())
        return str(conn.execute("SELECT pg_get_viewdef('v'::regclass)").fetchall()[0][0])


def test_words_are_printed_as_they_were_read() -> None:
    text = """SELECT substr(t, 1), mod(x, 2), "left"(t, 1), "Own"(x), x ^ 2 FROM t WHERE NOT (x IS NULL) AND t !~ 'a'"""
    assert printed(parsed(text)) == text
