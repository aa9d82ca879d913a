"""How planning grows with the length of a query: processor time at a quarter, half and full length.

    500 terms        a WHERE of that many conditions, ORed
    500 columns      a select list of that many expressions
    100 branches     a UNION ALL of that many queries
    60 groupings     a UNION ALL of grouped queries, a block each
    30 joins         inner, LEFT and FULL, each with the table before
    30 subqueries    in the select list, each of another table

The exponent is that of the last doubling: 1 is linear, 2 quadratic, which is the most it may be.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import millstream
from millstream.postgres.connection import connect

TABLE = "CREATE TABLE t (id int PRIMARY KEY, a int, b text, n numeric(12, 2))"


def terms(number: int) -> str:
    return "SELECT id FROM t WHERE " + " OR ".join(
        f"(a = {n} AND b <> 'x{n}')" for n in range(number)
    )


def columns(number: int) -> str:
    return f"SELECT id, {', '.join(f'a + {n} AS c{n}' for n in range(number))} FROM t"


def branches(number: int) -> str:
    return " UNION ALL ".join(f"SELECT id, b FROM t WHERE a = {n}" for n in range(number))


def groupings(number: int) -> str:
    return " UNION ALL ".join(
        f"SELECT {n} AS part, a, count(*) AS c FROM t WHERE a > {n} GROUP BY a"
        for n in range(number)
    )


def joins(kind: str) -> Callable[[int], str]:
    def query(number: int) -> str:
        joined = " ".join(
            f"{kind} JOIN t AS t{n} ON t{n}.id = t{n - 1}.a" for n in range(1, number + 1)
        )
        return f"SELECT t0.id, t{number}.b FROM t AS t0 {joined}"

    return query


def subqueries(number: int) -> str:
    found = ", ".join(
        f"(SELECT max(u.n) FROM t AS u WHERE u.a = t.id + {n}) AS c{n}" for n in range(number)
    )
    return f"SELECT id, {found} FROM t"


LONGEST: dict[str, tuple[Callable[[int], str], int]] = {
    "terms": (terms, 500),
    "columns": (columns, 500),
    "branches": (branches, 100),
    "groupings": (groupings, 60),
    "joins": (joins(""), 30),
    "left joins": (joins("LEFT"), 30),
    "full joins": (joins("FULL"), 30),
    "subqueries": (subqueries, 30),
}


def main() -> None:
    with millstream.embedded() as server, millstream.connect(server.dsn) as ms:
        with connect(server.dsn) as conn:
            conn.execute(TABLE)
        seconds(ms, terms(2))  # modules are imported, the installation is made
        for what, (query, number) in LONGEST.items():
            lengths = (number // 4, number // 2, number)
            took = [seconds(ms, query(length)) for length in lengths]
            exponent = math.log(took[2] / took[1], lengths[2] / lengths[1])
            times = " ".join(f"{one:7.2f} s" for one in took)
            print(f"{number:4} {what:12} {times}   exponent {exponent:.1f}", flush=True)


def seconds(ms: millstream.Millstream, query: str) -> float:
    """Processor time of planning a query."""
    started = time.process_time()
    refusal = ms.validate(query).refusal
    assert refusal is None, refusal
    return time.process_time() - started


if __name__ == "__main__":
    main()
