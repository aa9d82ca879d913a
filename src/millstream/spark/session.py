"""One warm Spark session per process, in a Java of its own; where that Java has ended, another one is started.

One that hangs is killed first (see `pulse.py`).

Settings that decide results are fixed here: ANSI mode (an overflow is an error, not a NULL), UTC,
exact decimals. Settings that decide speed are chosen per refresh, in `engine.py`.

What Java prints comes through a pipe and becomes log events ("Java says"), for as long as it runs: the terminal
is the command's, and stdout carries results only. What it says at every start is left out.
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
    # Of a chain of joins each level takes the analyzer some rounds.
    "spark.sql.analyzer.maxIterations": "10000",
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
    # Jobs of several threads share the processors; of one thread it makes no difference.
    "spark.scheduler.mode": "FAIR",
    # Out of memory, the driver ends: half-dead, it would leave us waiting for ever.
    _JAVA: "-XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError "
    # The parser and the optimizer recurse: at Java's own megabyte a sum of 2,000 terms over a join is too deep.
    "-Xss64m "
    # What Java says of its archive of classes would stand among a command's output.
    "-Xlog:disable -Xlog:all=error:stderr "
    f"-Dlog4j2.configurationFile=file:{_QUIET} -Dlog4j.configurationFile=file:{_QUIET}",
    "spark.log.level": "ERROR",
}

# What Java and Spark say at every start.
_USUAL = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "Setting Spark log level to",
    "To adjust logging level use",
)
# So many of Java's last lines are told when it does not start.
_TAIL = 20

# What the Java of this process has said last.
_heard = deque[str](maxlen=_TAIL)

# By the process id of a Java that this process has started.
_watchdogs: dict[int, Watchdog] = {}

_starting = Lock()


def start(master: str, conf: Mapping[str, str], memory: int | None = None) -> SparkSession:
    """Start (or find) the session; JavaMissing when Spark could not run. `memory`: of the driver, in bytes."""
    found = java()
    # Tasks must run in this very environment, whatever `python3` means on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    megabytes = (memory or _memory()) >> 20
    given = memory is not None or master.startswith("local")
    heap = {"spark.driver.memory": f"{megabytes}m"} if given else {}
    # A result that is larger is an error, not the end of the driver.
    heap |= {"spark.driver.maxResultSize": f"{megabytes // 4}m"} if given else {}
    # Java's options given stand beside ours, not in their place; the last one counts.
    options = {_JAVA: f"{_LOCAL[_JAVA]} {class_archive.java_options(found.told)} {conf.get(_JAVA, '')}"}
    chosen = {"spark.app.name": "millstream", "spark.master": master}
    chosen |= {**_LOCAL, **heap, **EXACT, **conf, **options}
    # Our own error says it; PySpark would print its stack first.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    with _starting, _interrupts_wait():
        return prepare(_session(chosen))


def _session(conf: Mapping[str, str]) -> SparkSession:
    """The session of this process, in a Java of its own where none runs yet."""
    if SparkContext._active_spark_context is None:
        given = SparkConf().setAll(list(conf.items()))
        context = SparkContext(conf=given, gateway=SparkContext._gateway or _launched(given))
        # It has a thread that prints a traceback when Java ends; whoever waits for Java is told anyway.
        context._accumulatorServer.handle_error = _passed_over  # type: ignore[method-assign]  # PySpark's
    return SparkSession.builder.config(map=dict(conf)).getOrCreate()


def _launched(conf: SparkConf) -> JavaGateway:
    """Start Java; what it prints is listened to, and what it writes is closed to others."""
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
        # Its last words may still be on their way.
        listener.join(timeout=5)
        raise JavaMissing.ended("\n".join(_heard) or str(error)) from error
    process: Popen[bytes] | None = gateway.proc
    if process is not None:
        grace = ARCHIVING if class_archive.AT_EXIT in conf.get(_JAVA, "") else GRACE
        _watchdogs[process.pid] = Watchdog(process.pid, directories, grace=grace)
        parameters = gateway.gateway_parameters
        pulse.watch(process, pulse.Address(parameters.address, parameters.port, parameters.auth_token), _heard.append)
    return gateway


# Of any type: a socket and an address.
def _passed_over(request: Any, client_address: Any) -> None:
    log.debug("lost a connection of Java", request=request, client=client_address)


def _listen(reading: int) -> None:
    """Take in what Java prints, line by line, until it ends."""
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
        for line in map(str.rstrip, lines):
            if line and not line.startswith(_USUAL):
                _heard.append(line)
                log.warning("Java says", line=line)


# -- a Java that has ended -------------------------------------------------------------------

# Seconds: when a connection to Java breaks, Java may not have ended yet.
_ENDING = 5.0


class Running:
    """The Java that a session runs in."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        # Of PySpark's own type, which it does not tell.
        self._gateway: Any = gateway

    def ended(self, patience: float = 0.0) -> str | None:
        """How it has ended, with its last words; None while it runs."""
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
        how = f"It was killed by signal {-status}." if status < 0 else f"It ended with status {status}."
        return " ".join([how, *_heard])

    def ended_by(self, error: BaseException) -> str | None:
        """The same, where this error may come from it."""
        return self.ended(_ENDING if isinstance(error, (Py4JError, OSError, EOFError)) else 0.0)

    def _answers(self) -> bool:
        parameters = self._gateway.java_parameters
        try:
            with socket.create_connection((parameters.address, parameters.port), timeout=_ENDING):
                return True
        except OSError:
            return False

    def forget(self) -> None:
        """Let go of one that has ended, so that `start` starts another."""
        with _starting:
            self._forget()

    def _forget(self) -> None:
        context, gateway = SparkContext._active_spark_context, self._gateway
        if id(gateway) != id(SparkContext._gateway):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for stop in (context.stop, context.stop) if context is not None else ():
                # The first call stumbles over the dead Java, the second ends what is left on our side.
                with suppress(Exception):
                    stop()
            with suppress(Exception):
                gateway.shutdown()
        private_files.remove()
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: Java, which ignores it, would start on its own and stay for ever."""
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
        # Spark puts a handler of its own there, which cancels its jobs; that one stays.
        if signal.getsignal(signal.SIGINT) is remember:
            signal.signal(signal.SIGINT, former)
    if asked:
        raise KeyboardInterrupt


def _memory() -> int:
    """Bytes for a local session: a quarter of the machine's, between one and four gigabytes."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1 << 30, min(4 << 30, machine // 4))


def prepare(spark: SparkSession) -> SparkSession:
    """Pin what decides results on any session."""
    for name, value in EXACT.items():
        spark.conf.set(name, value)
    return spark
