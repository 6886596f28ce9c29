"""The example of the documentation: orders in, totals back, each order counted once."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rocketstore
from tests.spark.patience import patiently
from tests.support.paths import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


def example() -> ModuleType:
    path = ROOT / "examples" / "spark_totals.py"
    spec = importlib.util.spec_from_file_location("spark_totals", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expected(path: Path) -> dict[str, tuple[int, int]]:
    orders, cents = Counter[str](), Counter[str]()
    with rocketstore.open(path, "r") as store:
        for message in store.consumer("orders"):
            order = json.loads(message.body)
            orders[order["user"]] += 1
            cents[order["user"]] += order["cents"]
    return {user: (orders[user], cents[user]) for user in orders}


def test_totals_follow_the_orders(spark: Any, tmp_path: Path) -> None:
    totals, path = example(), tmp_path / "shop"
    for seed in range(2):  # the second run takes only what came since
        totals.put_orders(path, 500, seed)
        patiently(functools.partial(totals.add_up, spark, path))
        found = totals.latest_totals(path)
        assert {u: (t["orders"], t["cents"]) for u, t in found.items()} == expected(path)
    with rocketstore.open(path, "r") as store:
        assert store.max_queue_offset("totals", 0) <= 2 * len(totals.USERS)
