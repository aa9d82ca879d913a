"""Start one Spark session per process, in a Java of its own, and start another one if that Java
ends.

A Java that hangs is killed first (see `pulse.py`).

Settings that affect results are fixed here: ANSI mode (an overflow is an error, not a NULL), UTC,
exact decimals. Settings that affect speed are chosen per refresh, in `engine.py`.

Java's output is read through a pipe and becomes log events ("Java says"): the terminal
belongs to the command, and stdout has results only. Messages of every start are ignored.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from threading import Lock, Thread, current_thread, main_thread
from types import FrameType
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from millstream.errors import JavaMissing
from millstream.observe import log
from millstream.spark import class_archive, private_files, pulse
from millstream.spark.java import java
from millstream.spark.watchdog import ARCHIVING, GRACE, Watchdog

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"

# Settings that affect results, also set in a session passed by the user.
EXACT: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Exact or an error, never rounded.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # With outer joins over outer joins, inferred filters may lose a column that is needed: an
    # internal error.
    "spark.sql.constraintPropagation.enabled": "false",
    # For a WITH query that numbers its rows and is used twice, this rule may return columns in
    # another order than requested, or drop a filter (SPARK-58696, SPARK-59434): an internal error,
    # or wrong rows.
    "spark.sql.optimizer.excludedRules": f"{_OPTIMIZER}.PushdownPredicatesAndPruneColumnsForCTEDef",
    # The analyzer needs some iterations for each level of a chain of joins.
    "spark.sql.analyzer.maxIterations": "10000",
    # `inline.py` writes special characters as escape sequences.
    "spark.sql.parser.escapedStringLiterals": "false",
}

_QUIET = Path(__file__).with_name("log4j2.properties")

_JAVA = "spark.driver.extraJavaOptions"

# Settings that keep a local session small, quiet and fast to start.
_LOCAL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    # Jobs of several threads share the processors.
    "spark.scheduler.mode": "FAIR",
    # Out of memory, the driver exits: if it continued in a broken state, we might wait forever.
    _JAVA: "-XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError "
    # The parser and the optimizer recurse: in Java's default megabyte a sum of 2,000 terms is too deep.
    "-Xss64m "
    # Otherwise Java's messages about the class archive would appear in a command's output.
    "-Xlog:disable -Xlog:all=error:stderr "
    f"-Dlog4j2.configurationFile=file:{_QUIET} -Dlog4j.configurationFile=file:{_QUIET}",
    "spark.log.level": "ERROR",
}

# Messages of Java and Spark at every start.
_USUAL = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "Setting Spark log level to",
    "To adjust logging level use",
)
# Number of Java's last lines in the error if it does not start.
_TAIL = 20

# The last lines of Java's output.
_heard = deque[str](maxlen=_TAIL)

# By the process id of each Java that this process has started.
_watchdogs: dict[int, Watchdog] = {}

_starting = Lock()


def start(master: str, conf: Mapping[str, str], memory: int | None = None) -> SparkSession:
    """Start or find the session; raise JavaMissing if Spark cannot run.

    `memory` is the driver's, in bytes.
    """
    found = java()
    # Tasks must run in this Python environment, whatever `python3` is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    megabytes = (memory or _memory()) >> 20
    given = memory is not None or master.startswith("local")
    heap = {"spark.driver.memory": f"{megabytes}m"} if given else {}
    # A larger result is an error, and does not end the driver.
    heap |= {"spark.driver.maxResultSize": f"{megabytes // 4}m"} if given else {}
    # Java options of the user are appended to ours; for duplicates the last one counts.
    options = {
        _JAVA: f"{_LOCAL[_JAVA]} {class_archive.java_options(found.told)} {conf.get(_JAVA, '')}"
    }
    chosen = {"spark.app.name": "millstream", "spark.master": master}
    chosen |= {**_LOCAL, **heap, **EXACT, **conf, **options}
    # Our own error reports it; PySpark would print a stack trace first.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    with _starting, _interrupts_wait():
        return prepare(_session(chosen))


def _session(conf: Mapping[str, str]) -> SparkSession:
    """Return the session of this process; start a Java if none runs yet."""
    if SparkContext._active_spark_context is None:
        given = SparkConf().setAll(list(conf.items()))
        context = SparkContext(conf=given, gateway=SparkContext._gateway or _launched(given))
        # PySpark has a thread that prints a traceback when Java ends; our errors report that
        # anyway.
        context._accumulatorServer.handle_error = _passed_over  # type: ignore[method-assign]  # PySpark's
    return SparkSession.builder.config(map=dict(conf)).getOrCreate()


def _launched(conf: SparkConf) -> JavaGateway:
    """Start Java, log what it prints, and give it private directories."""
    directories = private_files.make(dict(conf.getAll()))
    conf.set(_JAVA, f"{private_files.java_option(directories)} {conf.get(_JAVA, '')}")
    reading, writing = os.pipe()
    _heard.clear()
    listener = Thread(target=_listen, args=(reading,), name="java says", daemon=True)
    listener.start()
    try:
        with os.fdopen(writing, "wb") as pipe, private_files.environment(directories):
            how = {"stdout": pipe, "stderr": pipe, "umask": private_files.UMASK}
            gateway: JavaGateway = launch_gateway(conf, how)  # type: ignore[no-untyped-call]  # PySpark's
    except PySparkRuntimeError as error:
        # Its last lines may not be read yet.
        listener.join(timeout=5)
        raise JavaMissing.ended("\n".join(_heard) or str(error)) from error
    process: Popen[bytes] | None = gateway.proc
    if process is not None:
        grace = ARCHIVING if class_archive.AT_EXIT in conf.get(_JAVA, "") else GRACE
        _watchdogs[process.pid] = Watchdog(process.pid, directories, grace=grace)
        parameters = gateway.gateway_parameters
        pulse.watch(
            process,
            pulse.Address(parameters.address, parameters.port, parameters.auth_token),
            _heard.append,
        )
    return gateway


# Any: a socket and an address.
def _passed_over(request: Any, client_address: Any) -> None:
    log.debug("lost a connection of Java", request=request, client=client_address)


def _listen(reading: int) -> None:
    """Log what Java prints, line by line, until it ends."""
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
        for line in map(str.rstrip, lines):
            if line and not line.startswith(_USUAL):
                _heard.append(line)
                log.warning("Java says", line=line)


# -- a Java that has ended -------------------------------------------------------------------

# In seconds: when a connection to Java breaks, Java may not have ended yet.
_ENDING = 5.0


class Running:
    """The Java in which a session runs."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        # Any: PySpark does not export the type.
        self._gateway: Any = gateway

    def ended(self, patience: float = 0.0) -> str | None:
        """Return how it has ended, with its last output; None while it runs."""
        process: Popen[bytes] | None = getattr(self._gateway, "proc", None)
        if process is None:
            # Another process has started it.
            return None if self._answers() else "No process listens on its port."
        try:
            status = process.wait(patience)
        except TimeoutExpired:
            return None
        if process.pid in _watchdogs:
            _watchdogs.pop(process.pid).release()
        how = (
            f"It was killed by signal {-status}."
            if status < 0
            else f"It ended with status {status}."
        )
        return " ".join([how, *_heard])

    def ended_by(self, error: BaseException) -> str | None:
        """Return how it has ended, if that may be the cause of this error; otherwise None."""
        return self.ended(_ENDING if isinstance(error, (Py4JError, OSError, EOFError)) else 0.0)

    def _answers(self) -> bool:
        parameters = self._gateway.java_parameters
        try:
            with socket.create_connection((parameters.address, parameters.port), timeout=_ENDING):
                return True
        except OSError:
            return False

    def forget(self) -> None:
        """Release a Java that has ended, so that `start` starts another one."""
        with _starting:
            self._forget()

    def _forget(self) -> None:
        context, gateway = SparkContext._active_spark_context, self._gateway
        if id(gateway) != id(SparkContext._gateway):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for stop in (context.stop, context.stop) if context is not None else ():
                # The first call fails because of the dead Java, the second one releases what is
                # left.
                with suppress(Exception):
                    stop()
            with suppress(Exception):
                gateway.shutdown()
        private_files.remove()
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block: Java, which ignores it, would start without us and
    run forever.
    """
    former = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(former):
        yield
        return
    asked = list[int]()

    def remember(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        # Spark installs a handler of its own, which cancels its jobs; keep that one.
        if signal.getsignal(signal.SIGINT) is remember:
            signal.signal(signal.SIGINT, former)
    if asked:
        raise KeyboardInterrupt


def _memory() -> int:
    """Return the memory for a local session: a quarter of the machine's, from one to four
    gigabytes.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1 << 30, min(4 << 30, machine // 4))


def prepare(spark: SparkSession) -> SparkSession:
    """Set what affects results on any session."""
    for name, value in EXACT.items():
        spark.conf.set(name, value)
    return spark
