"""The wall clock jumps while a store is open, and between two opens (D-28)."""

from __future__ import annotations

import datetime
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore._native.os import syscalls
from rocketstore.log.commitlog.clock_monitor import ClockMonitor
from tests.process.other_process import SMALL, TOPIC, other_process
from tests.support import native_probe
from tests.support.checkpoints import rocketmq_times
from tests.support.small_store import open_small, parts
from tests.support.state_json import change_json
from tests.support.waiting import wait_until

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
#: Puts ten messages, steps the clock, puts ten more; opens again, puts ten more; says all store times.
STEPS = """
from pathlib import Path
from tests.support import native_probe
built, step_s, when = given
table = native_probe.load_built(Path(built))
table.install(None)
times = []
for life in range(2):
    if life == 1 and when == "between":
        table.step_clock(int(step_s * 1_000_000_000))
    with rocketstore.open(path, **options) as store:
        writer = store.writer(TOPIC)
        for number in range(20):
            if number == 10 and life == 0 and when == "during":
                table.step_clock(int(step_s * 1_000_000_000))
            times.append(writer.put(b"%d:" % number, keys="k").store_timestamp_ms)
        found = [m.store_timestamp_ms for m in store.consumer(TOPIC)]
        assert found == times, (found, times)
        assert store.recovery.mode == "clean"
        assert len(store.query(TOPIC, "k", limit=64)) == len(times)
        store.wait_flushed(store.end_offset)
say(json.dumps(times))
"""


@pytest.fixture(scope="module")
def built() -> Path:
    return native_probe.build(Path(native_probe.__file__).with_name("call_table.pyx"))


def times_with(built: Path, path: Path, step_s: float, when: str) -> list[int]:
    given: Any = [str(built), step_s, when]
    with other_process(STEPS, path, given=given, durability="os") as other:
        said = other.line()
        assert said, "the program failed"
        found: list[int] = json.loads(said)
        return found


@pytest.mark.parametrize("step_s", [-400 * 86400.0, -3600.0, -0.5, 0.5, 3600.0, 86400.0])
def test_a_clock_that_jumps_in_a_run(built: Path, tmp_path: Path, step_s: float) -> None:
    """Store times of a run follow the monotonic clock: none falls, none jumps."""
    times = times_with(built, tmp_path, step_s, "during")
    first = times[:20]
    assert first == sorted(first)
    assert first[-1] - first[0] < 30_000


@pytest.mark.parametrize("step_s", [-400 * 86400.0, -3600.0, -30.0, 30.0, 86400.0])
def test_a_clock_that_jumps_between_runs(built: Path, tmp_path: Path, step_s: float) -> None:
    """Store times fall only where the last one was more than a minute ahead of the clock."""
    times = times_with(built, tmp_path, step_s, "between")
    assert times[:20] == sorted(times[:20])
    assert times[20:] == sorted(times[20:])
    fell = times[20] < times[19]
    assert fell == (step_s < -60)


def test_a_step_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One of more than 10 s, and how far store times are off from then on."""
    real = syscalls.realtime_ms
    watch = ClockMonitor()
    for step_s, said in (
        (9, ""),
        (3600, "by +3600 s"),
        (3600, ""),
        (3580, "by -20 s"),
        (0, "+0 s"),
    ):
        monkeypatch.setattr(syscalls, "realtime_ms", lambda s=step_s: real() + s * 1000)
        caplog.clear()
        watch.look()
        assert len(caplog.messages) == bool(said)
        assert said in caplog.text
        assert not said or f"are {-step_s:+d} s off" in caplog.text


def test_an_open_store_looks_at_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = syscalls.realtime_ms
    with open_small(tmp_path) as store:
        monkeypatch.setattr(syscalls, "realtime_ms", lambda: real() - 86_400_000)
        parts(store).checkpointer.step()  # as it does each second
        assert "stepped by -86400 s" in caplog.text


#: So many messages with the clock so far from the right time, each time in a store that is opened anew.
LIVES = """
from pathlib import Path
from tests.support import native_probe
built, lives = given
table = native_probe.load_built(Path(built))
table.install(None)
times, windows = [], []
for step_s, count in lives:
    table.step_clock(int(step_s * 1_000_000_000))
    with rocketstore.open(path, **options) as store:
        writer = store.writer(TOPIC)
        for number in range(count):
            times.append(writer.put(b"x" * 1000, keys="k").store_timestamp_ms)
        windows.append((times[-count], times[-1]))
        for begin, end in windows:
            found = store.query(TOPIC, "k", begin=begin, end=end, limit=1000)
            wanted = sorted(time for time in times if begin <= time <= end)
            assert sorted(m.store_timestamp_ms for m in found) == wanted, (begin, end)
        store.wait_flushed(store.end_offset)
say(json.dumps(times))
"""


@pytest.mark.parametrize(
    ("lives", "known"),
    [
        ([[0, 200], [86_400, 250], [-86_400, 100]], True),
        # Of the first records of segments none falls: what was put after the clock was right again lies in one.
        ([[0, 200], [86_400, 40], [0, 5], [90_000, 200]], True),
        # As a release left it that did not note where, or another program.
        ([[0, 200], [400 * 86_400, 200], [0, 200]], False),
    ],
)
def test_what_is_asked_by_time_is_found_where_times_fell(
    built: Path, tmp_path: Path, lives: list[Any], known: bool
) -> None:
    """D-28: segments and index entries are passed over by their times only where those are in order."""
    given: Any = [str(built), lives]
    with other_process(LIVES, tmp_path, given=given, durability="os") as other:
        times: list[int] = json.loads(other.line())
    assert times != sorted(times)
    state_file = tmp_path / "rocketstore" / "store.json"
    state = json.loads(state_file.read_text())
    assert state["store_times_fall"]
    if not known:
        change_json(state_file, store_times_fall=[])
    bounds = sorted({*times[::50], times[-1], times[0] + 3_600_000})
    for bound in bounds:
        for name, wanted in (
            ("begin", [time for time in times if time >= bound]),
            ("end", [time for time in times if time < bound]),
        ):
            found = rocketstore.scan(tmp_path, columns=["store_timestamp_ms"], **{name: bound})
            rows = [time for chunk in found for time in chunk["store_timestamp_ms"].tolist()]
            assert rows == wanted, (name, bound)
    if known:
        with rocketstore.open(tmp_path, "r", **SMALL) as store:
            for begin, end in itertools.pairwise(bounds):
                found = store.query(TOPIC, "k", begin=begin, end=end, limit=1000)
                wanted = sorted(time for time in times if begin <= time <= end)
                assert sorted(m.store_timestamp_ms for m in found) == wanted, (begin, end)


#: Offsets for each store time, while the store is open for writing.
OFFSETS = LIVES.replace(
    "        store.wait_flushed",
    """        bounds = sorted({*times, times[-1] + 1})
        found = [[store.offset_at(TOPIC, 0, at, end) for end in ("lower", "upper")] for at in bounds]
        assert found == [
            [
                min((n for n, time in enumerate(times) if time >= at), default=len(times)),
                max((n for n, time in enumerate(times) if time <= at), default=-1),
            ]
            for at in bounds
        ]
        store.wait_flushed""",
)


@pytest.mark.parametrize(
    "lives",
    [
        # A day ahead, for a short time: a search by halves meets none of these messages.
        [[0, 100], [86_400, 20], [-86_400, 300]],
        [[0, 100], [86_400, 20], [-86_300, 200], [90_000, 40], [-180_000, 200], [0, 30]],
    ],
)
def test_an_offset_for_a_time_passes_over_nothing(
    built: Path, tmp_path: Path, lives: list[Any]
) -> None:
    """Who begins at a time is given all that was stored then or later."""
    with other_process(OFFSETS, tmp_path, given=[str(built), lives], durability="os") as other:  # fmt: skip
        times: list[int] = json.loads(other.line())
    with rocketstore.open(tmp_path, "r", **SMALL) as store:
        for at in sorted({*times, times[-1] + 1}):
            young = [n for n, time in enumerate(times) if time >= at]
            assert store.offset_at(TOPIC, 0, at) == min(young, default=len(times))
            with store.consumer(TOPIC, queue_id=0) as consumer:
                consumer.seek(when=EPOCH + datetime.timedelta(milliseconds=at))
                found = [m.queue_offset for m in consumer]
            assert set(young) <= set(found)


#: The second life puts what no queue flush covers, and is killed.
KILLED = LIVES.replace(
    "        store.wait_flushed(store.end_offset)",
    """        store.flush()
        if step_s < 0:
            say(json.dumps(times))
            sys.stdin.read()""",
)


def test_no_checkpoint_speaks_for_what_came_behind_a_fall(built: Path, tmp_path: Path) -> None:
    """RocketMQ's recovery begins at the newest file that is as old as the checkpoint: with a time from before
    the fall that is the last one, whatever of the queues of those before was lost."""
    given: Any = [str(built), [[86_400, 50], [-86_400, 50]]]
    with other_process(
        KILLED, tmp_path, given=given, durability="os",
        consume_queue_flush_interval_ms=1_000_000,
    ) as other:  # fmt: skip
        times: list[int] = json.loads(other.line())
        assert times[50] < times[49]
        wait_until(lambda: rocketmq_times(tmp_path)[0] == times[-1])
        other.kill()
    assert max(rocketmq_times(tmp_path)[:2]) == times[-1]
    with rocketstore.open(tmp_path, "r+", **SMALL, durability="os"):
        pass
    assert rocketmq_times(tmp_path)[:3] == (times[-1], times[-1], times[49])
