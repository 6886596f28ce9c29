"""The same messages give the same bytes, whoever writes them, and each store reads what the other one wrote."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rocketstore
from tests.interop.exchange import Steps, put_ours, put_theirs, served
from tests.interop.messages import SMALL, Sent, batches, config_of, messages
from tests.interop.oracle import Oracle, since
from tests.interop.same_bytes import assert_same_bytes
from tests.interop.views import Tally, of_oracle, of_ours
from tests.support import native_probe

pytestmark = pytest.mark.java


MESSAGES = 100_000
CHUNK = 5_000
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 1000 * 20,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 40_000,
    "maxMessageSize": 64 << 10,
}


def made(rng: random.Random) -> Iterator[Sent]:
    """Messages of all sizes with and without tags, one key, several keys and unique ids."""
    for number in range(MESSAGES):
        properties = []
        if number % 2:
            properties.append(("TAGS", rng.choice(["a", "paid", "täg", "Aa", "BB"])))
        if number % 3:
            properties.append(("KEYS", " ".join(f"k{rng.randrange(5000)}" for _ in range(3))))
        if number % 5 == 0:
            properties.append(("UNIQ_KEY", f"{rng.getrandbits(128):032X}"))
        rng.shuffle(properties)
        yield Sent(
            topic=f"Topic{rng.randrange(20)}",
            queue_id=rng.randrange(4),
            body=rng.randbytes(rng.choice([0, 1, 16, 100, 300, 3000])),
            properties=tuple(properties),
            flag=rng.getrandbits(31),
            born_host=rng.choice(["10.0.0.1:1234", "[fd00::1]:10911"]),
            sys_flag=rng.choice([0, 0, 0, 0, 4, 8, 12]),
            reconsume_times=rng.randrange(3),
        )


def files(root: Path) -> dict[str, list[Path]]:
    """Log, queues and index by folder, in order. Index files bear the time they were made at."""
    found: dict[str, list[Path]] = {}
    for part in ("commitlog", "consumequeue", "index"):
        for path in sorted((root / part).rglob("*")):
            if path.is_file():
                found.setdefault(str(path.parent.relative_to(root)), []).append(path)
    return found


@pytest.fixture
def clock() -> Iterator[Any]:
    probe = native_probe.load()
    yield probe
    probe.restore()


def test_byte_for_byte(
    oracle: Oracle, version: str, clock: Any, tmp_path: Path, random_seed: int
) -> None:
    """Commit log, consume queues and index; RocketMQ's files made ahead hold zeros only."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    store_times: list[int] = []
    with oracle.open(theirs, SETTINGS) as store:
        chunk: list[dict[str, Any]] = []
        for number, sent in enumerate(made(random.Random(random_seed)), 1):
            chunk.append(sent.for_oracle())
            if number % CHUNK == 0:
                for result in store.put(chunk):
                    assert result["status"] == "PUT_OK"
                    store_times.append(result["store_timestamp_ms"])
                chunk.clear()
        store.settle()
    assert len(store_times) == MESSAGES

    clock.freeze_clock(store_times[0])
    tags = since(version, "5.4")  # whose index has entries of tags as well
    with rocketstore.open(ours, config=config_of(SETTINGS, index_tags=tags)) as store:
        for sent, when in zip(made(random.Random(random_seed)), store_times, strict=True):
            clock.freeze_clock(when)
            assert sent.put(store).store_timestamp_ms == when
        clock.restore()

    compared = 0
    wanted, found = files(theirs), files(ours)
    assert set(found) == set(wanted)
    for folder, paths in wanted.items():
        assert len(found[folder]) <= len(paths), folder
        for mine, other in zip(found[folder], paths, strict=False):
            if folder != "index":
                assert mine.name == other.name
            assert_same_bytes(mine, other, f"{folder}/{mine.name}")
            compared += mine.stat().st_size
        for ahead in paths[len(found[folder]) :]:
            assert not any(ahead.read_bytes()), ahead
    segments, indexes = len(found["commitlog"]), len(found["index"])
    assert segments > 5
    assert indexes > 3
    print(
        f"RocketMQ {version}: {MESSAGES} messages, {compared} bytes equal in {segments} log files, "
        f"{len(found) - 2} queues, {indexes} index files"
    )


EXAMPLES = settings(
    max_examples=6,
    deadline=None,
    database=None,
    # A shrink would take minutes: every example starts and stops a RocketMQ.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
STEPS = st.lists(st.one_of(messages(), messages(), messages(), batches()), min_size=1, max_size=60)


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="interop-") as path:
        yield Path(path) / "store"


@EXAMPLES
@given(steps=STEPS)
def test_they_write_we_read(oracle: Oracle, tally: Tally, steps: Steps) -> None:
    with directory() as path:
        with oracle.open(path, SMALL) as theirs:
            acked = put_theirs(theirs, steps)
            theirs.settle()
            view = of_oracle(theirs.dump())
            served(tally, acked, view)
            with rocketstore.open(path, "r", config=config_of(SMALL)) as live:
                tally.same(view, of_ours(live))
        for mode in ("r", "rw"):
            with rocketstore.open(path, mode, config=config_of(SMALL)) as ours:
                tally.same(view, of_ours(ours))


@EXAMPLES
@given(steps=STEPS)
def test_we_write_they_read(oracle: Oracle, tally: Tally, steps: Steps) -> None:
    with directory() as path:
        with rocketstore.open(path, config=config_of(SMALL)) as ours:
            acked = put_ours(ours, steps)
            ours.wait_flushed(ours.end_offset)
        with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
            view = of_ours(ours)
            served(tally, acked, view)
        oracle.warnings()
        with oracle.open(path, SMALL) as theirs:
            tally.same(of_oracle(theirs.dump()), view)
