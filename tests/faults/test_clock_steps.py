"""The wall clock jumps while a store is open, and between two opens (D-28)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import native_probe
from tests.process.other_process import other_process

#: Puts ten messages, steps the clock, puts ten more; opens again, puts ten more; says all store times.
STEPS = """
from pathlib import Path
from tests import native_probe
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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(native_probe.__file__).with_name("call_table.pyx")
    return native_probe.build(source, tmp_path_factory.mktemp("table"))


def times_with(built: Path, path: Path, step_s: float, when: str) -> list[int]:
    import json

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
