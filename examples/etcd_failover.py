"""Several machines, one master at a time: etcd says which one, and another takes over when it is lost.

    python examples/etcd_failover.py --name a --listen 127.0.0.1:10921 data/a
    python examples/etcd_failover.py --name b --listen 127.0.0.1:10922 data/b
    python examples/etcd_failover.py --name c --listen 127.0.0.1:10923 data/c

Needs an etcd, 3.4 or newer, at http://127.0.0.1:2379 or --etcd. docs/recipes/failover.md explains it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import logging
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import rocketstore
from rocketstore import FencedError, ReplicasUnavailableError, ReplicaTimeoutError, Store
from rocketstore.replication import Master, Replica, promote

logger = logging.getLogger("failover")

#: How much sooner than etcd this machine lets a lease end, seconds: their clocks differ in rate.
MARGIN_S = 1.0
#: Between two looks at etcd, seconds.
LOOK_S = 0.5


class EtcdError(Exception):
    """etcd did not answer, or refused."""


class Etcd:
    """What this example asks of etcd, by its gateway for JSON."""

    def __init__(self, url: str, timeout_s: float = 1.5) -> None:
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, path: str, **body: Any) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, json.dumps(body).encode())
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                found: dict[str, Any] = json.loads(answer.readline())
                return found
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EtcdError(f"{path}: {error}") from error

    def below(self, prefix: str) -> dict[str, tuple[str, str]]:
        """Keys that begin with `prefix`, at one moment: their values and revisions."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.call("/v3/kv/range", key=_packed(prefix), range_end=_packed(after))
        return {
            _unpacked(one["key"]).removeprefix(prefix): (
                _unpacked(one["value"]),
                one["mod_revision"],
            )
            for one in found.get("kvs", ())
        }

    def put_if(self, revisions: dict[str, str], puts: list[tuple[str, str, str]]) -> bool:
        """Puts (key, value, lease) where each key of `revisions` has this one still; "0": it is not
        there."""
        compare = [
            {"key": _packed(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision}
            for key, revision in revisions.items()
        ]
        success = [
            {"requestPut": {"key": _packed(key), "value": _packed(value), "lease": lease}}
            for key, value, lease in puts
        ]
        return bool(self.call("/v3/kv/txn", compare=compare, success=success).get("succeeded"))


class EtcdLease:
    """A lease of etcd that a thread renews. `Master(lease=…)` asks for its deadline."""

    def __init__(self, etcd: Etcd, seconds: int) -> None:
        asked = time.monotonic()  # before the answer: a slow one makes the lease shorter
        granted = etcd.call("/v3/lease/grant", TTL=seconds)
        self.id = str(granted["ID"])
        self._etcd = etcd
        self._until = asked + int(granted["TTL"]) - MARGIN_S
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def deadline(self) -> float:
        return self._until

    @property
    def held(self) -> bool:
        return time.monotonic() < self._until

    def close(self) -> None:
        """Gives the lease back: all keys with it go at once."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(EtcdError):  # else it ends by itself
            self._etcd.call("/v3/lease/revoke", ID=self.id)

    def _renew(self) -> None:
        while not self._ended.wait(LOOK_S):
            asked = time.monotonic()
            try:
                answer = self._etcd.call("/v3/lease/keepalive", ID=self.id)
            except EtcdError as error:
                logger.warning("%s", error)
                continue
            seconds = int(answer.get("result", {}).get("TTL", 0))
            if not seconds:  # etcd has ended it
                self._until = 0.0
                return
            self._until = asked + seconds - MARGIN_S


class Leader(NamedTuple):
    """Which machine is the master, where it listens, and in which term."""

    name: str
    address: str
    term: int


class Seen(NamedTuple):
    """All keys at one moment. `revision`: of the key with the term."""

    leader: Leader | None
    term: int
    revision: str
    #: The candidates for the term after this one: the rank of each, and the largest term it knows.
    ranks: dict[str, tuple[tuple[int, ...], int]]


@dataclass
class Machine:
    """One of `machines` that keep a store; `copies` of them have each message that is acknowledged.

    A machine follows the master. Where there is none, it becomes a candidate: it writes its rank to
    etcd, and takes the lease if no other candidate has a larger rank. It waits for enough candidates
    first, so that at least one of them has each acknowledged message.
    """

    etcd: Etcd
    name: str
    path: Path
    listen: str
    machines: int = 3
    copies: int = 2
    seconds: int = 5
    #: How long other candidates are waited for, once there are enough, seconds.
    patience_s: float = 2.0
    prefix: str = "/rocketstore/orders/"
    key: bytes | None = field(default=None, repr=False)
    #: Options that each `rocketstore.open` of this machine gets.
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, work: Callable[[Store], None]) -> None:
        """For ever: `work(store)` is called each time that this machine is the master. It returns,
        or lets FencedError through, when puts are refused."""
        while True:
            try:
                leader = self.look().leader
                if leader is None:
                    self._be_candidate(work)
                elif leader.name != self.name:  # else: of a process that is gone
                    self._follow(leader)
            except EtcdError as error:
                logger.warning("%s", error)
            time.sleep(LOOK_S)

    def look(self) -> Seen:
        """What etcd says."""
        keys = self.etcd.below(self.prefix)
        term, revision = keys.get("term", ("0", "0"))
        leader = Leader(*json.loads(keys["leader"][0])) if "leader" in keys else None
        ranks = {}
        for key, (value, _) in keys.items():
            if key.startswith(f"ranks/{term}/"):
                rank, known = json.loads(value)
                ranks[key.rpartition("/")[2]] = (tuple(rank), known)
        return Seen(leader, int(term), revision, ranks)

    def _follow(self, leader: Leader) -> None:
        replica = Replica(master=leader.address, key=self.key)
        logger.info("%s follows %s in term %d", self.name, leader.name, leader.term)
        with rocketstore.open(self.path, replication=replica, **self.options) as store:
            while True:
                time.sleep(LOOK_S)
                status = store.replication
                if status.must_open_again:
                    return
                if status.error is not None:
                    raise status.error
                with contextlib.suppress(EtcdError):  # the master may be there all the same
                    if self.look().leader != leader:
                        return

    def _be_candidate(self, work: Callable[[Store], None]) -> None:
        with contextlib.closing(EtcdLease(self.etcd, self.seconds)) as lease:
            seen = self.look()
            rank, known = self._rank()
            if seen.term and not known:
                logger.warning("%s has nothing of term %d yet: it waits", self.name, seen.term)
                return
            text = json.dumps([rank, known])
            candidate = (f"{self.prefix}ranks/{seen.term}/{self.name}", text, lease.id)
            if not self.etcd.put_if(self._vacant(seen), [candidate]):
                return
            term = self._elected(seen, lease)
            if term:
                self._lead(term, known, lease, work)

    def _rank(self) -> tuple[tuple[int, ...], int]:
        """The rank of the local store, and the largest term that it knows; 0: it has no history."""
        try:
            with rocketstore.open(self.path, "r") as store:
                status = store.replication
        except FileNotFoundError:
            return (0, 0, 0), 0
        known = max(status.term, status.fenced_by or 0)
        return promote(self.path, dry_run=True).rank if known else (0, 0, 0), known

    def _vacant(self, seen: Seen) -> dict[str, str]:
        """No machine is the master, and none was since."""
        return {f"{self.prefix}leader": "0", f"{self.prefix}term": seen.revision}

    def _elected(self, began: Seen, lease: EtcdLease) -> int:
        """The term in which this machine is the master; 0: another one is, or none yet."""
        enough = self.machines - self.copies + 1
        since: float | None = None
        while lease.held:
            seen = self.look()
            if seen.leader is not None or seen.term != began.term:
                return 0
            if len(seen.ranks) < enough or self.name not in seen.ranks:
                since = None
            else:
                since = since or time.monotonic()
                late = time.monotonic() - since >= self.patience_s
                if len(seen.ranks) >= self.machines or late:
                    best = max(seen.ranks, key=lambda name: (seen.ranks[name][0], name))
                    term = max(seen.term, *(known for _, known in seen.ranks.values())) + 1
                    leader = json.dumps(Leader(self.name, self.listen, term))
                    puts = [
                        (f"{self.prefix}leader", leader, lease.id),
                        (f"{self.prefix}term", str(term), "0"),
                    ]
                    if best == self.name and self.etcd.put_if(self._vacant(seen), puts):
                        return term
            time.sleep(LOOK_S / 5)
        return 0

    def _lead(self, term: int, known: int, lease: EtcdLease, work: Callable[[Store], None]) -> None:
        if known:  # else: the first master of all, whose term is 1
            promote(self.path, above=term - 1)
        promise: Any = f"replicas({self.copies})"  # a Durability
        master = Master(listen=self.listen, key=self.key, lease=lease)
        with rocketstore.open(
            self.path, durability=promise, replication=master, **self.options
        ) as store:
            logger.info("%s is the master of term %d", self.name, store.replication.term)
            try:
                work(store)
            except FencedError as error:
                logger.warning("%s is no master any more: %s", self.name, error)


def _packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _unpacked(text: str) -> str:
    return base64.b64decode(text).decode()


def tick(store: Store) -> None:
    """A master's work: here the time, once a second."""
    writer = store.writer("ticks")
    while True:
        try:
            result = writer.put(time.ctime().encode())
            print("put", result.queue_offset, flush=True)
        except (ReplicasUnavailableError, ReplicaTimeoutError) as error:
            print("not acknowledged:", error, flush=True)
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--etcd", default="http://127.0.0.1:2379")
    parser.add_argument("--name", required=True, help="of this machine, another one on each")
    parser.add_argument("--listen", required=True, help="where it is reached as the master")
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--key-file", type=Path, help="a secret; needed beyond loopback")
    parser.add_argument("path", type=Path)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # closes the store, gives the lease back
    try:
        key = given.key_file.read_bytes().rstrip(b"\r\n") if given.key_file else None
        Master(listen=given.listen, key=key)  # else the first to notice is a machine that is chosen
    except (OSError, rocketstore.ConfigError) as error:
        parser.error(str(error))
    Machine(
        Etcd(given.etcd), given.name, given.path, given.listen, given.machines, given.copies,
        key=key,
    ).run(tick)  # fmt: skip


if __name__ == "__main__":
    main()
