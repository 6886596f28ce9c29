"""What a session needs to know, without one."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from rocketstore.spark import register
from rocketstore.spark.session import DISCOVERED, _make_known


def registered() -> list[Any]:
    """The sources that a session is told of."""
    found: list[Any] = []
    _make_known(SimpleNamespace(dataSource=SimpleNamespace(register=found.append)))  # type: ignore[arg-type]
    return found


def test_a_source_that_spark_does_not_find_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark lists directories, and an editable install has none on the path."""
    pytest.importorskip("pyspark", reason="needs pyspark: make spark")
    source = importlib.import_module(DISCOVERED).DefaultSource
    listed = [SimpleNamespace(name="os"), SimpleNamespace(name=DISCOVERED)]
    monkeypatch.setattr(pkgutil, "iter_modules", lambda: iter(listed))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert registered() == []
    monkeypatch.delenv("PYSPARK_PYTHON")  # Spark looks with the python3 of the PATH
    assert registered() == [source]
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # what spark-submit started has its own
    assert registered() == [source]
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    listed.pop()
    assert registered() == [source]


def test_register_takes_any_session() -> None:
    """Also where Spark would find the source: with the Python of PYSPARK_PYTHON it may not."""
    pytest.importorskip("pyspark", reason="needs pyspark: make spark")
    found: list[Any] = []
    session: Any = SimpleNamespace(dataSource=SimpleNamespace(register=found.append))
    assert register(session) is session
    [source] = found
    assert (source.__name__, source.name()) == ("RocketStoreDataSource", "rocketstore")


@pytest.mark.spark
def test_a_registered_source_is_the_one_that_is_found(spark: Any, tmp_path: Path) -> None:
    rocketstore.open(tmp_path / "s", index_enabled=False).close()
    again = register(spark.newSession())
    assert again.read.format("rocketstore").load(str(tmp_path / "s")).count() == 0
