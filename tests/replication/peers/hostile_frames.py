"""Throws frames of hostile peers at a real master, or at a real copy, and judges what that does.

    python -m tests.replication.peers.hostile_frames --frames 1000000 --role master --protocol rocketstore \
        [--tls] [--key] [--seed N] [--connections 4] [--turn-s 1.0]

`--role` is that of what is attacked: a master that an honest copy follows, or a copy whose master is
hostile, in a process in which another copy follows an honest master. The other ends are processes of
their own (`hostile_peers`, `--end`). A put at replicas(2) is the measure of the honest copy: the next
one begins once that is promised. Turns without and with the attack alternate; medians are compared.

On two cores what the hostile process and its sockets take is not there for the rest, and is no fault of
what is attacked. So the process is nice'd by 19, and where a master is attacked the same frames go to
another master, of a process of its own, in the turns without the attack.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from rocketstore import RocketStoreError, Store
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication.role.state import load_state
from tests.replication.certificates import contexts, make_certificate
from tests.replication.copies import (
    address_of,
    copy_of,
    counted,
    open_copy,
    open_master,
    same_log,
    service_of,
)
from tests.replication.peers.hostile_talk import Plan
from tests.replication.peers.hostile_watch import Told, Watch, answer_of, own_bytes, process
from tests.support.small_store import log_bytes
from tests.support.waiting import pause, wait_until

__all__ = ["SEGMENT", "attack"]

SEGMENT: Final = 1 << 24
OPTIONS: Final[dict[str, Any]] = {
    "commit_log_file_size_bytes": SEGMENT,
    "consume_queue_file_size_bytes": 600_000,
}
KEY: Final = b"a key of 16 bytes or more"
BODY: Final = b"x" * 100
#: So often as long as a turn without the attack is one with it.
ATTACKED: Final = 4


class _Puts:
    """One put at replicas(2) after the other, in a thread; how many were promised."""

    def __init__(self, master: Store) -> None:
        self.count = 0
        self._over = False
        self._writer = master.writer("t")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            self._writer.put(BODY, durability="replicas(2)")
            self.count += 1

    def end(self) -> None:
        self._over = True
        self._thread.join()


def client_of(plan: Plan) -> dict[str, Any]:
    """Settings of an honest copy."""
    tls = contexts(Path(plan.certificate))[1] if plan.certificate else None
    return {"protocol": plan.protocol, "key": KEY if plan.key else None, "tls": tls}


def server_of(plan: Plan) -> dict[str, Any]:
    """Settings of an honest master."""
    tls = contexts(Path(plan.certificate))[0] if plan.certificate else None
    return {**client_of(plan), "replica_timeout": timedelta(seconds=60), "tls": tls}


class _Scene:
    """A store that is attacked, and an honest copy. `address`: where the attack goes, "" for one that
    comes to the attacker; `log`: a file with the bytes of the log."""

    def __init__(self, root: Path, plan: Plan, told: Told) -> None:
        self.root, self.plan, self.told = root, plan, told
        self.ends = contextlib.ExitStack()
        self.address = self.log = ""

    def begin(self) -> None:
        """Opens what is attacked, and has the honest copy follow."""
        raise NotImplementedError

    def honest(self) -> object:
        """What takes the frames of the honest peer."""
        raise NotImplementedError

    def puts(self) -> int:
        """How many were promised so far."""
        raise NotImplementedError

    def tend(self) -> None:
        """Called again and again under the attack."""

    def quiet(self) -> None:
        """The hostile peers have stopped."""

    def decoy(self) -> str:
        """The address of what is attacked in the turns of the others; "": nothing is."""
        return ""

    def end(self) -> None:
        """Closes what is attacked."""
        raise NotImplementedError

    def judge(self) -> None:
        """Once the attack is over: what was lost?"""
        raise NotImplementedError

    def close(self, store: Store, service: Any) -> None:
        began = time.monotonic()
        store.close()
        self.told.closes_s.append(time.monotonic() - began)
        if service._thread.alive or service._thread.error is not None:
            self.told.faults.append(f"the thread after a close: {service._thread.error!r}")

    def begin_end(self, name: str, address: str = "") -> subprocess.Popen[str]:
        """The other end: `copy`, or a master in the directory of that name."""
        words = ["--end", name, str(self.root), _text(self.plan), address]
        return self.ends.enter_context(process("tests.replication.peers.hostile_frames", *words))


class _AttackedMaster(_Scene):
    def begin(self) -> None:
        self._store = open_master(self.root / "m", OPTIONS, **server_of(self.plan))
        self.address = address_of(self._store)
        self._store.put_message("t", BODY)  # a copy of RocketMQ's protocol asks for what there is
        self._copy = self.begin_end("copy", self.address)
        counted(self._store)
        self._honest = dict(service_of(self._store)._senders)
        self._puts = _Puts(self._store)

    def honest(self) -> object:
        (sender,) = self._honest.values()
        return getattr(sender.link, "_reader", sender.link)

    def decoy(self) -> str:
        return str(answer_of(self.begin_end("decoy"))["address"])

    def puts(self) -> int:
        return self._puts.count

    def quiet(self) -> None:
        """What hostile copies sent and was not read is dropped."""
        service = service_of(self._store)

        def end() -> None:
            for task in service._tasks - self._honest.keys():
                task.cancel()

        service._thread.call(end)
        wait_until(lambda: len(service._tasks) == 1)

    def end(self) -> None:
        self._puts.end()
        service, store = service_of(self._store), self._store
        if service._senders.keys() < self._honest.keys():
            self.told.faults.append(f"the honest copy was disconnected: {service.last_error}")
        self.close(store, service)

    def judge(self) -> None:
        if error := answer_of(self._copy, "end")["error"]:
            self.told.faults.append(f"the honest copy: {error}")
        self._copy.wait()
        state = load_state(StoreLayout(self.root / "m"))
        assert state is not None
        if state.fenced_by is not None or state.term != 1:
            self.told.faults.append(f"the master was fenced: {state}")
        same_log(self.root / "m", self.root / "copy")


class _AttackedCopy(_Scene):
    """`copy` follows the honest master, `victim` did so before."""

    def begin(self) -> None:
        self._master = self.begin_end("m")
        address = answer_of(self._master)["address"]
        settings = client_of(self.plan)
        with open_copy(self.root / "victim", address, OPTIONS, **settings) as victim:
            end = answer_of(self._master, "put")["end"]
            wait_until(lambda: victim.flushed_offset == end)
        before = log_bytes(self.root / "victim").rstrip(b"\0")
        Path(self.root / "before").write_bytes(before)
        self.log = str(self.root / "before")
        self._state = load_state(StoreLayout(self.root / "victim"))
        self._copy = open_copy(self.root / "copy", address, OPTIONS, **settings)
        answer_of(self._master, "go")
        self._victim: Store | None = None

    def honest(self) -> object:
        link = copy_of(self._copy)._link
        return getattr(link, "_reader", link)

    def puts(self) -> int:
        return int(answer_of(self._master, "count")["puts"])

    def tend(self) -> None:
        """A copy without a key that was told to stop is opened again."""
        if self._victim is not None and (stopped := copy_of(self._victim).stopped) is not None:
            if self.plan.key or not isinstance(stopped, RocketStoreError):
                self.told.faults.append(f"the copy: {stopped!r}")
            self.close(self._victim, copy_of(self._victim))
            self._victim = None
        if self._victim is None:
            settings = client_of(self.plan)
            self._victim = open_copy(self.root / "victim", self.address, OPTIONS, **settings)

    def end(self) -> None:
        assert self._victim is not None
        self.close(self._victim, copy_of(self._victim))

    def judge(self) -> None:
        end = answer_of(self._master, "end")["end"]
        wait_until(lambda: self._copy.flushed_offset == end)
        self._copy.close()
        same_log(self.root / "m", self.root / "copy")
        now, before = load_state(StoreLayout(self.root / "victim")), self._state
        assert now is not None and before is not None
        if dataclasses.replace(now, stopped="") != dataclasses.replace(before, stopped=""):
            self.told.faults.append(f"the victim is {now}, and was {before}")
        if log_bytes(self.root / "victim").rstrip(b"\0") != Path(self.log).read_bytes():
            self.told.faults.append("the log of the victim is another one")


def attack(
    root: Path,
    plan: Plan,
    frames: int,
    turn_s: float,
    longest_s: float = 1e9,
    *,
    decoy: bool = False,
) -> Told:
    """Turns without and with hostile frames, until so many were taken, or after so long. The last
    turn goes on while what is attacked closes."""
    told, began, before = Told(), time.monotonic(), 0
    watch, scene = Watch(told), _SCENES[plan.role](root, plan, told)
    with watch.entered(), scene.ends:
        scene.begin()
        watch.honest = scene.honest()
        plan = dataclasses.replace(plan, address=scene.address, log=scene.log)
        peers = scene.ends.enter_context(
            process("tests.replication.peers.hostile_peers", _text(plan))
        )
        scene.address = scene.address or answer_of(peers)["address"]
        other = scene.decoy() if decoy else ""
        while True:
            told.quiet.append(_turn(scene, turn_s))
            told.rates[0].append(told.quiet[-1])
            if other:
                answer_of(peers, f"go {other}")
                told.rates[0][-1] = _turn(scene, turn_s)
                answer_of(peers, "stop")
            before = before or own_bytes()
            seen = watch.frames
            told.peers = answer_of(peers, f"go {scene.address}")
            told.rates[1].append(_turn(scene, ATTACKED * turn_s, attacked=True))
            told.taken += watch.frames - seen
            told.note_growth(own_bytes() - before)
            if told.taken >= frames or time.monotonic() - began > longest_s:
                break
            answer_of(peers, "stop")
            scene.quiet()
        scene.end()
        told.peers = answer_of(peers, "stop")
        scene.judge()
    return told


def _turn(scene: _Scene, turn_s: float, *, attacked: bool = False) -> float:
    """Puts a second."""
    before, began = scene.puts(), time.monotonic()
    while (now := time.monotonic()) < began + turn_s:
        if attacked:
            scene.tend()
        pause(min(0.02, began + turn_s - now))
    puts = scene.puts() - before
    return puts / (time.monotonic() - began)


def _text(plan: Plan) -> str:
    return json.dumps(dataclasses.asdict(plan))


# ---- the other ends ----


def _be_copy(root: Path, plan: Plan, address: str) -> None:
    with open_copy(root / "copy", address, OPTIONS, **client_of(plan)) as copy:
        sys.stdin.readline()
        error = copy.replication.error
        print(json.dumps({"error": repr(error) if error else ""}), flush=True)


def _be_master(root: Path, plan: Plan, name: str) -> None:
    with open_master(root / name, OPTIONS, **server_of(plan)) as master:
        print(json.dumps({"address": address_of(master)}), flush=True)
        puts: _Puts | None = None
        for line in sys.stdin:
            if line.strip() == "put":
                for _ in range(200):
                    master.put_message("t", BODY)
            elif line.strip() == "go":
                counted(master)
                puts = _Puts(master)
            elif line.strip() == "end" and puts is not None:
                puts.end()
            said = {"puts": 0 if puts is None else puts.count, "end": master.end_offset}
            print(json.dumps(said), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--role", choices=list(_SCENES), default="master")
    parser.add_argument("--protocol", choices=["rocketstore", "rocketmq"], default="rocketstore")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--key", action="store_true", help="which the hostile peers do not know")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--scenes", default="", help="names of some of hostile_peers")
    parser.add_argument(
        "--alone", action="store_true", help="each frame is sent by a call of its own"
    )
    parser.add_argument("--turn-s", type=float, default=1.0)
    parser.add_argument("--longest-s", type=float, default=1e9)
    parser.add_argument("--end", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.end:
        name, root, plan, address = given.end
        settings = Plan(**json.loads(plan))
        if name == "copy":
            _be_copy(Path(root), settings, address)
        else:
            _be_master(Path(root), settings, name)
        return 0
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        certificate = str(make_certificate(root)) if given.tls else ""
        plan = Plan(
            *(given.role, given.protocol, given.seed, SEGMENT),
            certificate=certificate,
            key=given.key,
            connections=given.connections,
            scenes=given.scenes,
            alone=given.alone,
        )
        print(f"seed {given.seed}, load {os.getloadavg()[0]:.1f}", flush=True)
        told = attack(root, plan, given.frames, given.turn_s, given.longest_s, decoy=True)
    print(told.shown())
    for fault in told.judged():
        print(f"FAULT {fault}")
    return bool(told.judged())


_SCENES: Final[dict[str, type[_Scene]]] = {"master": _AttackedMaster, "replica": _AttackedCopy}

if __name__ == "__main__":
    sys.exit(main())
