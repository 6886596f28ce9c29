"""`examples/shared_service.py`: four workers share a store; what they acknowledged is there, and once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import rocketstore
from tests.process.service_kills import SEGMENT_BYTES, faults, running
from tests.process.service_kills import campaign as killed
from tests.support import campaign
from tests.support.waiting import wait_until


def test_each_worker_puts_and_reads(tmp_path: Path) -> None:
    orders, workers = list[str](), set[int]()
    with running(tmp_path / "store") as service:
        while not orders or workers != set(service.workers):
            orders.append(f"o-{len(orders)}")
            status, said, worker = service.request("POST", f"/orders/{orders[-1]}", b"two books")
            assert (status, said) == (201, {"queue_offset": len(orders) - 1})
            workers.add(worker)
        for offset, order in enumerate(orders):
            status, said, _ = service.request("POST", f"/orders/{order}", b"two books")
            assert (status, said) == (200, {"queue_offset": offset})
            # A worker sees what another one has put once it is dispatched.
            wait_until(lambda order=order: service.request("GET", f"/orders/{order}")[0] == 200)
            assert service.request("GET", f"/orders/{order}")[1] == "two books"
        wait_until(lambda: service.request("GET", "/orders")[1] == orders)
        assert service.request("GET", "/orders/none")[0] == 404
        assert service.request("GET", "/payments")[0] == 404
        assert service.request("PUT", "/orders/o-1", b"")[0] == 405
        assert service.request("POST", "/orders/long", bytes(64 * 1024 + 1))[0] == 413
    with rocketstore.open(tmp_path / "store") as store:
        assert store.recovery.mode == "clean"


def test_workers_are_killed(tmp_path: Path, random_seed: int) -> None:
    assert killed(tmp_path / "store", range(3), random.Random(random_seed))["acknowledged"]


@pytest.mark.proof
def test_many_workers_are_killed(tmp_path: Path, random_seed: int) -> None:
    kills = campaign.begin("kills of a shared service").rounds()
    print(killed(tmp_path / "store", kills, random.Random(random_seed)))


def test_the_judge_finds_a_loss_and_what_is_twice(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, commit_log_file_size_bytes=SEGMENT_BYTES) as store:
        orders = store.writer("orders")
        for order in ("o-0", "o-1"):
            orders.put(order.encode(), keys=order)
        assert faults(tmp_path, {"o-0": 0, "o-1": 1}) == faults(tmp_path, {"o-0": 0}) == []
        assert faults(tmp_path, {"o-2": 2}) == ["lost: o-2"]
        assert faults(tmp_path, {"o-1": 0}) == ["o-1 at 1, not 0"]
        orders.put(b"o-1", keys="o-1")
        assert faults(tmp_path, {}) == ["2 times: o-1"]
        orders.put(b"else", keys="o-3")
        assert "another body: o-3" in faults(tmp_path, {})
