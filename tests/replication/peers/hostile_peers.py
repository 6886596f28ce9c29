"""Hostile peers in a process of their own: copies of a master, or the master of a copy.

`python -m tests.replication.peers.hostile_peers PLAN`, a `Plan` as JSON. Each line on stdin, `go` or `stop`, is
answered by a line of JSON: the frames that were said, how often each scene was, seconds of processor
time. `go ADDRESS`: at another one. The first answer, to nothing, names the address where a master
listens. The process is nice'd.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from rocketstore.errors import RocketStoreError
from tests.replication.peers.hostile_scenes import SCENES
from tests.replication.peers.hostile_talk import PATIENCE_S, Peer, Plan, connected, tls_of

#: How much less than others these peers get of a processor: they share it with what they attack.
NICE: Final = 19


def _name(scene: Callable[[Peer], None]) -> str:
    return scene.__name__.strip("_")


class _Attack:
    """Scenes one after the other in each of some threads, while it goes on."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.going = threading.Event()
        self.said = [Counter[str]() for _ in range(plan.connections)]
        self._open: set[socket.socket] = set()
        masters = plan.role == "replica"
        self._listener = socket.create_server(("127.0.0.1", 0)) if masters else None
        self._scenes = SCENES[plan.role, plan.protocol]
        wanted = plan.scenes.split(",") if plan.scenes else [_name(one) for one in self._scenes]
        self._scenes = tuple(one for one in self._scenes if _name(one) in wanted)
        for number, said in enumerate(self.said):
            rng = random.Random(plan.seed * 1000 + number)
            threading.Thread(target=self._run, args=(rng, said), daemon=True).start()

    def stop(self) -> None:
        self.going.clear()
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def report(self) -> str:
        told = sum(self.said, Counter[str]())
        at = self._listener.getsockname()[1] if self._listener else 0
        cpu_s = time.process_time()
        return json.dumps({**told, "cpu_s": round(cpu_s, 2), "address": f"127.0.0.1:{at}"})

    def _run(self, rng: random.Random, said: Counter[str]) -> None:
        while True:
            self.going.wait()
            try:
                with self._next() as sock:
                    self._open.add(sock)
                    scene = rng.choice(self._scenes)
                    said[_name(scene)] += 1
                    peer = Peer(sock, rng, self.plan, said)
                    try:
                        scene(peer)
                        peer.end()
                    finally:
                        self._open.discard(sock)
            except (OSError, RocketStoreError, ValueError, struct.error):
                time.sleep(0.001)

    def _next(self) -> socket.socket:
        if self._listener is None:
            return connected(self.plan)
        sock, _ = self._listener.accept()
        self.going.wait()
        if not self.plan.certificate:
            return sock
        sock.settimeout(PATIENCE_S)
        return tls_of(self.plan.certificate)[0].wrap_socket(sock, server_side=True)


def main() -> None:
    os.nice(NICE)
    attack = _Attack(Plan(**json.loads(sys.argv[1])))
    print(attack.report(), flush=True)
    for line in sys.stdin:
        what, *address = line.split()
        if what == "go":
            if address:
                attack.plan = dataclasses.replace(attack.plan, address=address[0])
            attack.going.set()
        else:
            attack.stop()
        print(attack.report(), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
