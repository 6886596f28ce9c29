"""What a session needs to know, without one."""

from __future__ import annotations

import importlib
import pkgutil
from types import SimpleNamespace
from typing import Any

import pytest

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
    assert registered() == []
    listed.pop()
    assert registered() == [source]
