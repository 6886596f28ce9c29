"""A compacted store: RocketMQ opens it, and finds each message at its queue offset, around the gaps."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest

import rocketstore
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle
from tests.interop.test_repair import messages_of
from tests.interop.views import Tally, of_ours

pytestmark = pytest.mark.java


@pytest.mark.parametrize("keep_offsets", [True, False])
@pytest.mark.parametrize("crashed", [False, True])
def test_rocketmq_reads_a_compacted_store(
    oracle: Oracle,
    version: str,
    tally: Tally,
    tmp_path: Path,
    rng: random.Random,
    crashed: bool,
    keep_offsets: bool,
) -> None:
    """RocketMQ 5 looks for the minimum of a queue by halving, which gaps mislead: it hides the first
    messages of a queue, in its first file."""
    into = tmp_path / "into"
    with rocketstore.open(tmp_path / "store", config=config_of(SMALL)) as store:
        for number in range(300):
            properties = (("KEYS", f"k{rng.randrange(150)}"), ("TAGS", "a"))
            body = rng.randbytes(rng.randrange(40, 600)) if number % 9 else b""
            Sent(body=body, properties=properties, queue_id=number % 3).put(store)
        store.wait_flushed(store.end_offset)
        [topic] = store.topics()
        report = store.compact(topic, into=into, grace=timedelta(0), keep_offsets=keep_offsets)
    assert 0 < report.tombstones_dropped < report.kept < 150
    assert bool(report.skipped_offsets) == keep_offsets
    if crashed:
        (into / "abort").touch()
        (into / "checkpoint").unlink()
    with rocketstore.open(into, "r", config=config_of(SMALL)) as ours:
        end = ours.end_offset
        seen = of_ours(ours)
    expected = {
        at: (topic, one["queue_id"], one["queue_offset"]) for at, one in seen.messages().items()
    }
    assert len(expected) == report.kept
    for _ in range(2):
        with oracle.open(into, SMALL) as theirs:
            dump = theirs.dump()
        assert dump["max_offset"] == end
        found = {at: one[:3] for at, one in messages_of(dump).items()}
        if keep_offsets and not version.startswith("4."):
            first = {q["queue_id"]: q["min"] for q in dump["queues"]}
            hidden = {at: one for at, one in expected.items() if one[2] < first[one[1]]}
            assert found == {at: one for at, one in expected.items() if at not in hidden}
            continue
        assert found == expected
    tally.scenarios += 1
    tally.messages += len(expected)
