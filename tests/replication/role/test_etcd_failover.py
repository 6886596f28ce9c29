"""`examples/etcd_failover.py` with a real etcd: one master at a time, and another where it is lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore import FencedError
from tests.replication.copies import open_master
from tests.replication.cutting_proxy import CuttingProxy
from tests.replication.role.etcd import (
    MARGIN_S,
    SECONDS,
    EtcdServer,
    Machine,
    etcd_program,
    example,
    free_address,
)
from tests.support.small_store import everything, open_small
from tests.support.waiting import PATIENCE_S, pause, wait_until

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(
        etcd_program() is None,
        reason="needs etcd: Debian's etcd-server, or `make etcd`, which builds one with Go",
    ),
]

#: A named run has more.
KILLS = int(os.environ.get("ROCKETSTORE_ETCD_KILLS", 2))
#: How far from its deadline the end of a lease may be noticed, seconds: less than the margin.
LATE_S = MARGIN_S - 0.1


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path / "etcd")
    yield server
    server.kill()


@pytest.fixture
def ways(etcd: EtcdServer, rng: random.Random) -> Iterator[list[CuttingProxy]]:
    """The way of each machine to etcd."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(CuttingProxy(etcd.address, rng, 0, 1)) for _ in "abc"]


@pytest.fixture
def machines(tmp_path: Path, ways: list[CuttingProxy]) -> Iterator[list[Machine]]:
    found = [
        Machine(tmp_path, name, f"http://{way.address}", free_address())
        for name, way in zip("abc", ways, strict=True)
    ]
    try:
        for one in found:
            one.start()
        yield found
    finally:
        for one in found:
            one.kill()


def cut(way: CuttingProxy) -> None:
    way.target = free_address()  # nothing listens there


def master_since(machines: list[Machine], moment: float) -> Machine:
    """The machine that has a put acknowledged that began after `moment`; waits for it."""
    found: list[Machine] = []

    def there() -> bool:
        found[:] = [one for one in machines if one.acked_since(moment)]
        return bool(found)

    wait_until(there, lambda: "\n".join(one.log() for one in machines))
    return found[0]


def all_follow(machines: list[Machine]) -> None:
    """Waits until each one has heard of the term: one that has not is no candidate for the next."""
    wait_until(lambda: len({one.term for one in machines}) == 1 and machines[0].term > 0)


def settled(machines: list[Machine]) -> tuple[int, int]:
    """Kills all. Nothing acknowledged is lost. How many were acknowledged, and how often another
    machine than before did so, in the order in which the puts began."""
    master = master_since(machines, time.monotonic())
    for one in machines:
        one.kill()
    puts = sorted((put for one in machines for put in one.puts()), key=lambda put: put.begun)
    acked = [put for put in puts if put.result == "acked"]
    with open_small(master.path, "r") as store:
        log = [bytes(message.body).decode() for message in everything(store)]
    assert len(log) == len(set(log))
    lost = {put.number for put in acked} - set(log)
    assert not lost, f"{len(lost)} of {len(acked)} are lost: {sorted(lost)[:5]}"
    return len(acked), sum(a.name != b.name for a, b in itertools.pairwise(acked))


def no_put_after_another(machines: list[Machine], master: Machine) -> None:
    """A master whose place another has takes no put, acknowledged or not."""
    others = [put.begun for one in machines if one is not master for put in one.puts()]
    taken = [put.begun for put in master.puts() if put.result != "fenced"]
    assert max(taken) < max(others)
    first_of_others = min(moment for moment in others if moment > min(taken))
    assert max(taken) < first_of_others


def test_another_machine_takes_over_each_time(machines: list[Machine]) -> None:
    outages = []
    for _ in range(KILLS):
        master = master_since(machines, time.monotonic())
        all_follow(machines)
        master.kill()
        died = time.monotonic()
        master_since([one for one in machines if one is not master], died)
        outages.append(time.monotonic() - died)
        master.start()
    acked, changes = settled(machines)
    print(f"{acked} acknowledged, outages {[f'{seconds:.1f}' for seconds in outages]} s")
    assert changes == KILLS


def test_a_machine_that_lacks_messages_is_not_chosen(machines: list[Machine]) -> None:
    """Alone it waits; of two the one that has them is chosen."""
    master = master_since(machines, time.monotonic())
    late, other = (one for one in machines if one is not master)
    all_follow(machines)
    late.kill()
    master_since([master], time.monotonic())
    master.kill()
    other.kill()
    late.start()
    pause(2.5 * SECONDS)
    assert not late.acked_since(time.monotonic() - 2 * SECONDS)
    assert "is the master" not in late.log()
    other.start()
    assert master_since(machines, time.monotonic()) is other
    assert settled(machines)[1] == 1


def test_a_master_that_etcd_does_not_reach_takes_no_puts(
    machines: list[Machine], ways: list[CuttingProxy]
) -> None:
    """Its replicas do reach it; they follow the other one."""
    master = master_since(machines, time.monotonic())
    all_follow(machines)
    way = ways[machines.index(master)]
    cut(way)
    others = [one for one in machines if one is not master]
    other = master_since(others, time.monotonic())
    wait_until(lambda: [put.result for put in master.puts()][-1] == "fenced", master.log)
    no_put_after_another(machines, master)
    way.target = next(one.target for one in ways if one is not way)
    wait_until(lambda: f"follows {other.name}" in master.log(), master.log)
    assert settled(machines)[1] == 1


def test_a_master_that_sleeps_loses_its_place(machines: list[Machine]) -> None:
    """What it takes before it has asked is acknowledged by no copy."""
    master = master_since(machines, time.monotonic())
    all_follow(machines)
    master.signal(signal.SIGSTOP)
    others = [one for one in machines if one is not master]
    other = master_since(others, time.monotonic())
    master.signal(signal.SIGCONT)
    wait_until(lambda: f"follows {other.name}" in master.log(), master.log)
    assert settled(machines)[1] == 1


def test_all_wait_while_etcd_is_away(machines: list[Machine], etcd: EtcdServer) -> None:
    """Puts end at the deadline; they go on when etcd is back, and nothing is lost."""
    master = master_since(machines, time.monotonic())
    etcd.kill()
    wait_until(lambda: [put.result for put in master.puts()][-1] == "fenced", master.log)
    last = [put for put in master.puts() if put.result == "acked"][-1]
    etcd.start()
    assert master_since(machines, last.ended)
    assert settled(machines)[0]


class Candidate:
    """Another machine that wants the lease, in a thread: when it got it."""

    def __init__(self, url: str) -> None:
        self._module = example()
        self._etcd = self._module.Etcd(url)
        self.got = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.got:
            with contextlib.suppress(self._module.EtcdError):
                lease = self._module.EtcdLease(self._etcd, SECONDS)
                try:
                    if self._etcd.put_if({"/leader": "0"}, [("/leader", "other", lease.id)]):
                        self.got = time.monotonic()
                finally:
                    lease.close()
            time.sleep(0.01)

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert self.got


@pytest.mark.parametrize("what", ["partition", "stopped", "killed"])
def test_puts_end_before_another_can_have_the_lease(
    what: str, tmp_path: Path, etcd: EtcdServer, ways: list[CuttingProxy]
) -> None:
    module = example()
    client = module.Etcd(f"http://{ways[0].address}")
    with contextlib.closing(module.EtcdLease(client, SECONDS)) as lease:
        assert client.put_if({"/leader": "0"}, [("/leader", "this", lease.id)])
        with open_master(tmp_path / "m", lease=lease) as store:
            writer = store.writer("orders")
            until = time.monotonic() + 2 * SECONDS
            while time.monotonic() < until:  # the lease is renewed
                writer.put(b"x")
            other = Candidate(etcd.url)
            if what == "partition":
                cut(ways[0])
            elif what == "stopped":
                etcd.signal(signal.SIGSTOP)
            else:
                etcd.kill()
            with pytest.raises(FencedError, match="lease"):
                while True:
                    writer.put(b"x")
                    last = time.monotonic()
            assert lease.deadline() - LATE_S < last < lease.deadline() + LATE_S
            if what == "stopped":
                pause(SECONDS)
                etcd.signal(signal.SIGCONT)
            elif what == "killed":
                etcd.start()
            if what == "partition":
                other.join()
                print(f"the last put came {other.got - last:.2f} s before another had the lease")
                assert other.got > last
                with pytest.raises(FencedError):
                    writer.put(b"x")
    other.join()
    assert other.got > last
