"""A reader of ours beside a RocketMQ that writes: another process, no lock, nobody tells it anything."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import rocketstore
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle
from tests.interop.views import Tally, of_oracle, of_ours

pytestmark = pytest.mark.java

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
