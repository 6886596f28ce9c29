"""One SparkSession for all tests marked `spark`; without pyspark or Java they are skipped."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.paths import ROOT

MISSING = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if MISSING:
        reason = f"needs {' and '.join(MISSING)}: make spark"
        for item in items:
            if item.get_closest_marker("spark") is not None:  # the folder is a keyword, too
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`local[2]` with little memory; workers find this tree as this process does."""
    from rocketstore import spark as face

    warehouse = tmp_path_factory.mktemp("warehouse")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), os.environ.get("PYTHONPATH", "")]
    ).rstrip(os.pathsep)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = face.session(
            master="local[2]",
            app_name="tests",
            config={
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(warehouse),
                "spark.log.level": "ERROR",
            },
        )
        yield session
        session.stop()
