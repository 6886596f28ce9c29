"""`examples/order_service.py`: each order is worked once, whatever kills the service."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.process.order_kills import campaign as killed
from tests.process.order_kills import faults
from tests.support import campaign
from tests.support.paths import ROOT


def test_the_program_works_orders_and_is_killed_twice(tmp_path: Path, random_seed: int) -> None:
    """Orders that an earlier start has placed are none to the next one."""
    command = [sys.executable, "examples/order_service.py", str(tmp_path / "a"), "--orders", "9"]
    told = [subprocess.check_output(command, cwd=ROOT, text=True) for _ in range(2)]
    first, _, found = told[0].partition(":")
    assert (first, told[1]) == ("9 orders placed", "0 orders placed:" + found)
    assert killed(tmp_path / "b", range(2), random.Random(random_seed))["acknowledged"] > 0


@pytest.mark.proof
def test_nothing_is_lost_and_nothing_is_twice(tmp_path: Path, random_seed: int) -> None:
    """Results, retries, payments and deadlines."""
    kills = campaign.begin("kills of an order service").rounds()
    print(killed(tmp_path / "store", kills, random.Random(random_seed)))


def test_the_judge_finds_a_loss_and_what_is_twice() -> None:
    """Of two orders that failed three times and twice; the second one was paid too late."""
    right = Counter(
        [("orders", "o-0", tries) for tries in ("", "1", "2", "3")]
        + [("orders", "o-1", tries) for tries in ("", "1", "2")]
        + [("results", "o-0", what) for what in ("made", "paid")]
        + [("results", "o-1", what) for what in ("made", "expired", "refund")]
        + [("payments", "o-0", ""), ("payments", "o-1", ""), ("deadlines", "o-1", "")]
    )
    assert faults(right, 2) == faults(right, 1) == []
    for row in right:
        assert faults(right + Counter([row]), 2)
        assert faults(right - Counter([row]), 2)
    assert faults(right, 0) == ["never placed: o-1"]
    assert "lost: ('orders', 'o-2', '') 1" in faults(right, 3)
