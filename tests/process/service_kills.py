"""Kills workers of `examples/shared_service.py` while clients send orders, then says what is lost or there twice:

    python -m tests.process.service_kills --kills 100 --seed 7

Each client sends an order until it is acknowledged, the same one again after each error. Every worker may be killed,
the host among them: the service starts another one in its place.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import rocketstore
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S, pause, wait_until

WORKERS = 4
CLIENTS = 6
SEGMENT_BYTES = 1 << 18


@dataclass
class Service:
    """The service as a process, and what it has said of its workers."""

    process: subprocess.Popen[str]
    port: int
    #: Each worker that was ready once.
    workers: list[int] = field(default_factory=list)

    def follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.workers.append(int(line.removeprefix("worker ")))

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, object, int]:
        """Status, answer, and the worker that gave it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), int(answer.headers["x-worker"])
        finally:
            connection.close()


@contextmanager
def running(path: Path) -> Iterator[Service]:
    """Ends in order: what is left in the store is what a stop of all its processes leaves."""
    command = [sys.executable, "examples/shared_service.py", str(path), "--port", "0"]
    command += ["--workers", str(WORKERS), "--segment-bytes", str(SEGMENT_BYTES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as process:
        assert process.stdout is not None
        service = Service(process, int(process.stdout.readline().removeprefix("listening at ")))
        following = threading.Thread(target=service.follow)
        following.start()
        try:
            wait_until(lambda: len(service.workers) >= WORKERS or process.poll() is not None)
            yield service
        finally:
            process.send_signal(signal.SIGTERM)
            following.join(PATIENCE_S)
            code = process.wait(PATIENCE_S)
    assert code == 0, code


class Clients:
    """Send orders until `stop`. `acknowledged` has each order that was, and the offset that the answer gave."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.stopped = threading.Event()
        self.acknowledged: dict[str, int] = {}
        self.answers = Counter[int | str]()

    def send(self, client: int) -> None:
        number = 0
        while not self.stopped.is_set():
            order = f"o-{client}-{number}"
            if self.sent(order):
                number += 1

    def sent(self, order: str) -> bool:
        """Whether it was acknowledged. What is not is sent again."""
        try:
            status, said, _ = self._service.request("POST", f"/orders/{order}", order.encode())
        except (OSError, ValueError, http.client.HTTPException) as error:  # half an answer, too
            self.answers[type(error).__name__] += 1
            return False
        self.answers[status] += 1
        assert status in (200, 201, 503), (status, said)
        if status == 503:
            return False
        assert isinstance(said, dict)
        self.acknowledged[order] = said["queue_offset"]
        return True


def kill_workers(
    service: Service, clients: Clients, kills: Iterable[int], rng: random.Random
) -> int:
    """Kills one worker after the other, each at a random moment after orders were acknowledged since the last."""
    killed = set[int]()

    def wait(condition: Callable[[], bool]) -> None:
        def came() -> bool:
            assert service.process.poll() is None, "the service has ended by itself"
            return condition()

        wait_until(came, lambda: f"after {len(killed)} kills: {clients.answers}")

    for _ in kills:
        wait(lambda: len(service.workers) >= WORKERS + len(killed))
        before = len(clients.acknowledged)
        wait(lambda before=before: len(clients.acknowledged) > before + 10)
        pause(rng.uniform(0, 0.05))
        worker = rng.choice([pid for pid in service.workers if pid not in killed])
        killed.add(worker)
        os.kill(worker, signal.SIGKILL)
    return len(killed)


def faults(path: Path, acknowledged: dict[str, int]) -> list[str]:
    """What is lost, there twice, or at another place than its answer said."""
    with rocketstore.open(path, "r") as store:
        found = [(one.queue_offset, one.keys[0], one.body) for one in store.consumer("orders")]
    places = {order: at for at, order, _ in found}
    wrong = [f"lost: {order}" for order in acknowledged.keys() - places.keys()]
    times = Counter(order for _, order, _ in found)
    wrong += [f"{count} times: {order}" for order, count in times.items() if count > 1]
    wrong += [
        f"{order} at {places[order]}, not {at}"
        for order, at in acknowledged.items()
        if places.get(order, at) != at
    ]
    wrong += [f"another body: {order}" for _, order, body in found if body != order.encode()]
    if [at for at, *_ in found] != list(range(len(found))):
        wrong.append("offsets of the queue do not follow each other")
    return wrong


def campaign(path: Path, kills: Iterable[int], rng: random.Random) -> dict[str, object]:
    """Kills workers while clients send; gives what was counted."""
    with running(path) as service, ThreadPoolExecutor(CLIENTS) as pool:
        clients = Clients(service)
        sending = [pool.submit(clients.send, client) for client in range(CLIENTS)]
        try:
            killed = kill_workers(service, clients, kills, rng)
        finally:
            clients.stopped.set()
        for one in sending:
            one.result()
    wrong = faults(path, clients.acknowledged)
    assert not wrong, (wrong[:5], clients.answers)
    return {"killed": killed, "acknowledged": len(clients.acknowledged), **clients.answers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        print(f"seed {given.seed}", flush=True)
        found = campaign(Path(where) / "store", range(given.kills), random.Random(given.seed))
    print("0 lost, 0 twice:", found)


if __name__ == "__main__":
    main()
