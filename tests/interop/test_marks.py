"""Marks, locks and a RocketMQ that runs: who stopped cleanly is believed, a reader beside a writer disturbs none."""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path

import pytest

import rocketstore
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, OracleError
from tests.interop.views import Tally, of_oracle, of_ours

pytestmark = pytest.mark.java


BODIES = [b"%03d" % n * 80 for n in range(150)]


def some(first: int = 0, count: int = 150) -> list[Sent]:
    return [
        Sent(body=body, properties=(("KEYS", f"k{n}"), ("TAGS", "a")), queue_id=n % 2)
        for n, body in enumerate(BODIES[first : first + count], first)
    ]


def plain(warnings: list[str], path: Path) -> list[str]:
    """Warnings without places and numbers."""
    return [re.sub(r"\d+", "N", line.replace(str(path), "")) for line in warnings]


def image(root: Path) -> dict[str, str]:
    """Digests of what both writers share."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in ("commitlog", "consumequeue", "index")
        for path in sorted((root / part).rglob("*"))
        if path.is_file()
    }


def test_rocketmq_trusts_our_clean_stop(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """It starts without a recovery of the log and without a warning about the store, and its start and
    stop change no byte."""
    path = tmp_path / "store"
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        for sent in some():
            sent.put(ours)
    assert not (path / "abort").exists()
    with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
        view = of_ours(ours)
    before = image(path)
    oracle.warnings()  # those of other tests
    with oracle.open(path, SMALL) as theirs:
        said = plain(oracle.warnings(), path)
        tally.same(of_oracle(theirs.dump()), view)
    after = image(path)
    assert {name: after[name] for name in before} == before

    own = tmp_path / "own"
    with oracle.open(own, SMALL) as theirs:
        theirs.put([sent.for_oracle() for sent in some()])
        theirs.settle()
    oracle.warnings()
    with oracle.open(own, SMALL):
        assert said == plain(oracle.warnings(), own), "no more than about a store of its own"


def test_we_trust_rocketmqs_clean_stop(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """The log is not read from its beginning, only what RocketMQ itself would read."""
    path = tmp_path / "store"
    with oracle.open(path, SMALL) as theirs:
        theirs.put([sent.for_oracle() for sent in some()])
        theirs.settle()
        view = of_oracle(theirs.dump())
    segments = len(list((path / "commitlog").iterdir()))
    assert segments > 3
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        assert ours.recovery.mode == "foreign-clean"
        assert ours.recovery.start >= view.end - 3 * int(SMALL["mappedFileSizeCommitLog"])
        assert ours.recovery.damage == ()
        tally.same(view, of_ours(ours))
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        assert ours.recovery.mode == "clean"


def test_a_running_rocketmq_keeps_us_out(oracle: Oracle, tmp_path: Path) -> None:
    """Ours says who has the lock; reading is allowed."""
    path = tmp_path / "store"
    pid = oracle.ask("version")["pid"]
    with oracle.open(path, SMALL) as theirs:
        theirs.put([sent.for_oracle() for sent in some(0, 10)])
        theirs.settle()
        with pytest.raises(rocketstore.StoreLockedError, match=str(pid)):
            rocketstore.open(path, config=config_of(SMALL))
        theirs.put([sent.for_oracle() for sent in some(10, 10)])
        theirs.settle()
        with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
            assert len(of_ours(ours).messages()) == 20


def test_a_rocketmq_that_starts_beside_us_costs_nothing(
    version: str, tally: Tally, tmp_path: Path
) -> None:
    """It recovers, truncates and deletes before it finds the lock taken; what we hold stays."""
    path = tmp_path / "store"
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        for sent in some(0, 60):
            sent.put(ours)
        for number in range(3):
            # Each leaves its mappings and threads behind until its process ends.
            with Oracle(version) as other:
                with pytest.raises(OracleError, match="(?i)lock"):
                    other.start(path, SMALL)
                for sent in some(60 + 30 * number, 30):
                    sent.put(ours)
        ours.wait_flushed(ours.end_offset)
        live = of_ours(ours)
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        assert sorted(message.body for message in ours.consumer("Orders")) == BODIES
        tally.same(live, of_ours(ours))
    with Oracle(version) as alone, alone.open(path, SMALL) as theirs:
        tally.same(of_oracle(theirs.dump()), live)


MESSAGES = 3_000
CHUNK = 20


def test_each_message_once_and_in_order(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """While RocketMQ rolls log, queue and index files under the reader."""
    path = tmp_path / "store"
    sent = [
        Sent(queue_id=n % 2, body=b"%06d" % n + b"." * (n % 400), properties=(("KEYS", f"k{n}"),))
        for n in range(MESSAGES)
    ]
    failures: list[BaseException] = []
    with oracle.open(path, SMALL) as theirs:
        theirs.put([sent[0].for_oracle(), sent[1].for_oracle()])
        theirs.settle()

        def write() -> None:
            try:
                for at in range(2, MESSAGES, CHUNK):
                    theirs.put([one.for_oracle() for one in sent[at : at + CHUNK]])
            except BaseException as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
            writer.start()
            seen: dict[int, list[bytes]] = {0: [], 1: []}
            with ours.consumer("Orders") as consumer:
                for message in consumer.follow(timeout_s=30):
                    seen[message.queue_id].append(message.body)
                    if sum(map(len, seen.values())) == MESSAGES:
                        break
            writer.join()
            assert failures == []
            for queue_id, bodies in seen.items():
                assert bodies == [one.body for one in sent if one.queue_id == queue_id]
            theirs.settle()
            assert [m.body for m in ours.query("Orders", f"k{MESSAGES - 1}")] == [sent[-1].body]
            view = of_oracle(theirs.dump())
            assert view.end > 5 * int(SMALL["mappedFileSizeCommitLog"])
            tally.same(view, of_ours(ours))
