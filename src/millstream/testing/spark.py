"""One Spark for several processes of the suite: what Java has compiled for one of them serves all.

    with shared() as address:           the process that starts Spark, and ends it
        attached(address)               any other: a session of its own in the same Spark

With a Spark each, they would compile the same code again, for the first minutes half of what the
processors do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from millstream.spark import session

# Tasks of one process may have to wait; those of the others go on. What is large is cut as for two
# processors.
_MASTER = "local[4]"
_CONF = {"spark.default.parallelism": "2"}
# Where PySpark looks for a Java that runs already.
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


@contextmanager
def shared() -> Iterator[str]:
    """Start a Spark; yields its address, for `attached`."""
    spark = session.start(_MASTER, _CONF)
    parameters = _gateway(spark).java_parameters
    try:
        yield f"{parameters.port}/{parameters.auth_token}"
    finally:
        spark.stop()


def attached(address: str) -> SparkSession:
    """Return a session of this process in a Spark that another one has started."""
    os.environ[_PORT], os.environ[_SECRET] = address.split("/", 1)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]  # PySpark's
    finally:
        # Processes that this one starts have a Spark of their own.
        del os.environ[_PORT], os.environ[_SECRET]
    context = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(_jconf=context.getConf())
    own = session.prepare(
        SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf)).newSession()
    )
    # What the product starts in this process; PySpark would take Java's default session, which all
    # processes share: one of them would drop the views of another, and change its settings.
    SparkSession._instantiatedSession = SparkSession._activeSession = own
    return own


def _gateway(spark: SparkSession) -> JavaGateway:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return gateway
