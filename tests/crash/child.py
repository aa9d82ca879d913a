"""A process to be killed: connects, uses the Spark of the process that started it, does one thing and ends.

    python child.py DSN refresh              refresh every stream table
    python child.py DSN create NAME QUERY    create one

MILLSTREAM_FAILPOINT says where it shall die, MILLSTREAM_TEST_PASS at which passing of that point (the first, unless
it says otherwise). With PYSPARK_GATEWAY_PORT it drives the Spark that runs there already, as a driver of its own
with a session of its own; starting a Spark for each of some forty crashes would take ten minutes. Without, it
starts one.

It prints its own backend's id, where it dies, and `survived` if it does not.
"""

from __future__ import annotations

import os
import sys

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import millstream
from millstream.observe import failpoint


def main(dsn: str, verb: str, *arguments: str) -> None:
    spark = attached() if "PYSPARK_GATEWAY_PORT" in os.environ else None
    die_at_pass(int(os.environ.get("MILLSTREAM_TEST_PASS", "1")))
    with millstream.connect(dsn, spark=spark) as ms:
        print("backend", ms.app.conn.info.backend_pid, flush=True)
        if verb == "create":
            name, query = arguments
            ms.create_stream_table(name, query)
        else:
            ms.refresh_all()
    print("survived", flush=True)
    # Not by way of atexit, where PySpark would stop the Spark that is not ours.
    os._exit(0)


def attached() -> SparkSession:
    """A session on the Spark of another process."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # PySpark types it not
    jvm = gateway.jvm
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    conf = SparkConf(_jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf)).newSession()


def die_at_pass(number: int) -> None:
    """Let the failpoint pass some times before it kills, and have it say so."""
    kill, passes = os.kill, iter(range(1, number + 1))

    def kill_later(pid: int, signal: int) -> None:
        if next(passes) == number:
            print("killed at", os.environ[failpoint.VARIABLE], number, flush=True)
            kill(pid, signal)

    failpoint.os.kill = kill_later  # type: ignore[attr-defined]  # its own import of os


if __name__ == "__main__":
    main(*sys.argv[1:])
