"""A process with a Spark of its own, whose Java is killed.

    python child.py DSN killed      between two refreshes, amid one, and at every try
    python child.py DSN hangs       amid a refresh; it is stopped and does not end
    python child.py DSN given       the session was handed in

It prints what it found, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from pyspark import SparkContext

import millstream
from millstream import Millstream
from millstream.errors import JavaEnded
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.settings import Settings
from millstream.spark import pulse, session
from millstream.spark.engine import Engine, Rows
from millstream.testing import oracle

TABLES = {
    "totals": "SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region",
    "large": "SELECT id, amount FROM orders WHERE amount > 500",
}


def kill_java() -> None:
    """End it as the server's out-of-memory killer would."""
    gateway: Any = SparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)
    gateway.proc.wait()


TUNE = Engine._tune


def amid(times: int, act: Callable[[], None]) -> None:
    """Do this to it amid the next evaluations, so many of them."""
    left = iter(range(times))

    def tune(engine: Engine, views: Mapping[str, Rows]) -> None:
        if next(left, None) is not None:
            act()
        TUNE(engine, views)

    Engine._tune = tune  # type: ignore[assignment,method-assign]  # as a function, not as a method


def stop_java() -> None:
    """Have it hang: its connections stay open, and nothing comes over them."""
    os.kill(pid(), signal.SIGSTOP)


def exact(now: Cut, job: Job, report: RefreshReport) -> None:
    oracle.check(now.conn, job.table.query, job.table.qualified)


def change(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "UPDATE orders SET amount = amount + 1 WHERE id % 100 = 3; DELETE FROM orders WHERE id % 100 = 7"
        )
        conn.execute("INSERT INTO orders SELECT max(id) + 700, 3, 900 FROM orders")


def killed(dsn: str) -> dict[str, Any]:
    found = dict[str, Any]()
    with millstream.connect(dsn, settings=Settings(spark_master="local[2]")) as ms:
        javas = {pid()} if make(ms) else set[int]()
        ms.app.witness = exact
        kill_java()
        change(dsn)
        found["between"] = {"actions": actions(ms), "javas": len(javas := javas | {pid()})}
        change(dsn)
        amid(1, kill_java)
        found["amid"] = {"actions": actions(ms), "javas": len(javas := javas | {pid()})}
        change(dsn)
        amid(100, kill_java)
        found["at every try"] = refused(ms)
        amid(0, kill_java)
        found["then"] = {"actions": actions(ms)}
    return found


def hangs(dsn: str) -> dict[str, Any]:
    # Long enough for a Java that is alive on a busy machine.
    pulse.EVERY, pulse.LIMIT, pulse.AGAIN = 0.5, 5.0, 3.0
    with millstream.connect(dsn, settings=Settings(spark_master="local[2]")) as ms:
        javas = {pid()} if make(ms) else set[int]()
        ms.app.witness = exact
        change(dsn)
        amid(1, stop_java)
        return {"actions": actions(ms), "javas": len(javas | {pid()})}


def make(ms: Millstream) -> bool:
    for name, query in TABLES.items():
        ms.create_stream_table(name, query, schedule="1h", refresh_mode="DIFFERENTIAL")
    return True


def pid() -> int:
    gateway: Any = SparkContext._gateway
    return int(gateway.proc.pid)


def actions(ms: Millstream) -> list[str]:
    return [report.action for report in ms.refresh_all()]


def refused(ms: Millstream) -> dict[str, Any]:
    try:
        ms.refresh("totals")
    except JavaEnded as error:
        status = next(one for one in ms.status() if one.name == "totals")
        named = "killed by signal 9" in error.detail
        return {
            "code": error.code, "retryable": error.retryable, "signal": named,
            "status": status.status, "failures": status.consecutive_errors,
        }  # fmt: skip
    return {}


def given(dsn: str) -> dict[str, Any]:
    spark = session.start("local[1]", {})
    with millstream.connect(dsn, spark=spark) as ms:
        make(ms)
        kill_java()
        change(dsn)
        try:
            ms.refresh("totals")
        except JavaEnded as error:
            return {"code": error.code, "message": error.message}
    return {}


if __name__ == "__main__":
    print(json.dumps({"killed": killed, "hangs": hangs, "given": given}[sys.argv[2]](sys.argv[1])))
