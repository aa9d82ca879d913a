"""One warm Spark session per process.

Settings that decide results are fixed here: ANSI mode (an overflow is an error, not a NULL), UTC,
exact decimals. Settings that decide speed are chosen per refresh, in `engine.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from millstream.spark import archive
from millstream.spark.java import java

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"

# What decides results; a session handed in by the user gets these too.
EXACT: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Exact or an error, never rounded.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # Of outer joins over outer joins, inferred filters may lose a column that is asked for: an internal error.
    "spark.sql.constraintPropagation.enabled": "false",
    # Of a WITH query that numbers its rows and is used twice, this rule may give the columns in another order than they
    # are asked for, or drop a filter (SPARK-58696, SPARK-59434): an internal error, or wrong rows.
    "spark.sql.optimizer.excludedRules": f"{_OPTIMIZER}.PushdownPredicatesAndPruneColumnsForCTEDef",
    # `inline.py` writes odd letters by their numbers.
    "spark.sql.parser.escapedStringLiterals": "false",
}

_QUIET = Path(__file__).with_name("log4j2.properties")

_JAVA = "spark.driver.extraJavaOptions"

# What keeps a local session small, quiet and quick to start.
_LOCAL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    # Out of memory, the driver ends: half-dead, it would leave us waiting for ever.
    _JAVA: "-XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError "
    # What Java says of its archive of classes would stand among a command's output.
    "-Xlog:disable -Xlog:all=error:stderr "
    f"-Dlog4j2.configurationFile=file:{_QUIET} -Dlog4j.configurationFile=file:{_QUIET}",
    "spark.log.level": "ERROR",
}


def start(master: str, conf: Mapping[str, str]) -> SparkSession:
    """Start (or find) the session; JavaMissing when Spark could not run."""
    found = java()
    # Tasks must run in this very environment, whatever `python3` means on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("millstream").master(master)
    memory = {"spark.driver.memory": f"{_memory()}m"} if master.startswith("local") else {}
    # Java's options given stand beside ours, not in their place; the last one counts.
    options = {_JAVA: f"{_LOCAL[_JAVA]} {archive.java_options(found.told)} {conf.get(_JAVA, '')}"}
    for name, value in {**_LOCAL, **memory, **EXACT, **conf, **options}.items():
        builder = builder.config(name, value)
    # Our own error says it; PySpark would print its stack first.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    return prepare(builder.getOrCreate())


def _memory() -> int:
    """Megabytes for a local session: a quarter of the machine's, between one and four gigabytes."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1024, min(4096, machine // 4))


def prepare(spark: SparkSession) -> SparkSession:
    """Pin what decides results on any session."""
    for name, value in EXACT.items():
        spark.conf.set(name, value)
    return spark
