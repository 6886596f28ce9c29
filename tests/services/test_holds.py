"""Names that hold the log: what they keep, over reopens, beside trims, and when their file is damaged."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rocketstore
from rocketstore import ConfigError, ReadFailedError, Retention, Store
from rocketstore.cli.app import cli as main
from rocketstore.log.layout import state_files
from rocketstore.log.layout.named_holds import HOLDS_MAX, load_holds, save_holds
from rocketstore.log.layout.paths import StoreLayout
from tests.support.retention_tools import ALL, Disk, fill
from tests.support.small_store import SEGMENT, engine_of, open_small


def begins_at(store: Store) -> int:
    """Where the log begins after a trim of all that may go."""
    store.trim(before_offset=store.end_offset)
    return store.begin_offset


@pytest.mark.quick
def test_a_hold_keeps_the_log_until_it_is_released(tmp_path: Path) -> None:
    with fill(open_small(tmp_path)) as store:
        kept = store.retention
        last = store.end_offset // SEGMENT * SEGMENT
        kept.hold("snapshot", 2 * SEGMENT + 7)
        kept.hold("audit", 3 * SEGMENT)
        assert kept.holds == {"snapshot": 2 * SEGMENT + 7, "audit": 3 * SEGMENT}
        assert f"held by 'snapshot' (from {2 * SEGMENT + 7})" in str(kept.plan(ALL))
        assert kept.run(ALL).new_begin_offset == begins_at(store) == 2 * SEGMENT
    with open_small(tmp_path) as store, open_small(tmp_path, "r") as reader:
        assert reader.retention.holds == store.retention.holds
        assert reader.retention.plan(ALL).count == 0
        assert begins_at(store) == 2 * SEGMENT
        store.retention.hold("snapshot", 4 * SEGMENT)  # it moves
        assert begins_at(store) == 3 * SEGMENT
        assert store.retention.release("audit")
        assert not store.retention.release("audit")
        assert begins_at(store) == 4 * SEGMENT
        assert store.trim(before_time=2**52) == 4 * SEGMENT
        assert store.retention.release("snapshot")
        assert begins_at(store) == last


def test_what_cannot_be_held(tmp_path: Path) -> None:
    with fill(open_small(tmp_path)) as store:
        store.trim(before_offset=SEGMENT)
        kept, end = store.retention, store.end_offset
        for offset in (SEGMENT - 1, end + 1):
            with pytest.raises(rocketstore.OffsetOutOfRangeError):
                kept.hold("x", offset)
        kept.hold("end", end)
        for name in ("", "x" * 256):
            with pytest.raises(ConfigError):
                kept.hold(name, end)
        for name, offset in ((3, end), ("x", "y"), ("x", True)):
            with pytest.raises(TypeError):
                kept.hold(name, offset)  # type: ignore[arg-type]
        save_holds(StoreLayout(tmp_path), {f"\N{SNOWMAN}{n}" * 50: end for n in range(HOLDS_MAX)})
        with pytest.raises(ConfigError, match="1000 holds"):
            kept.hold("one more", end)
        with open_small(tmp_path, "r") as reader:
            for call in (
                lambda: reader.retention.hold("x", end),
                lambda: reader.retention.release("x"),
            ):
                with pytest.raises(rocketstore.StoreReadOnlyError):
                    call()
    with pytest.raises(rocketstore.StoreClosedError):
        kept.hold("x", end)


def test_the_largest_table_fits_its_limits(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path)
    layout.tmp.mkdir(parents=True)
    holds = {f"{n:04d}".ljust(255, "\U0001f680"): (1 << 63) - 1 for n in range(HOLDS_MAX)}
    save_holds(layout, holds)
    assert load_holds(layout) == holds


def test_a_hold_that_cannot_be_stored_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fill(open_small(tmp_path)) as store:
        store.retention.hold("a", SEGMENT)

        def full(*arguments: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(state_files, "write_state_file", full)
            for act in (lambda: store.retention.hold("b", 0), lambda: store.retention.release("a")):
                with pytest.raises(OSError, match="No space"):
                    act()
        assert store.retention.holds == {"a": SEGMENT}
        assert begins_at(store) == SEGMENT


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '{"version": 1}', '{"holds": {}}', '{"version": 2, "holds": {}}'),
        *('{"version": 1, "holds": []}', '{"version": 1, "holds": {"a": -1}}'),
        *('{"version": 1, "holds": {"a": 1.5}}', '{"version": 1, "holds": {"a": true}}'),
        '{"version": 1, "holds": {"a": 1}, "crc": 7}',
    ],
)
def test_a_damaged_file_keeps_all_of_the_log(tmp_path: Path, text: str) -> None:
    """And says how to go on: the names that it had are not known."""
    with fill(open_small(tmp_path)) as store:
        path = StoreLayout(tmp_path).holds
        path.write_text(text)
        plan = store.retention.run(ALL)
        assert plan.count == 0
        assert f"{path} cannot be read" in str(plan)
        for act in (
            lambda: store.trim(before_offset=SEGMENT),
            lambda: store.retention.hold("a", SEGMENT),
            lambda: store.retention.release("a"),
            lambda: store.retention.holds,
        ):
            with pytest.raises(ReadFailedError, match="until it is restored, or deleted"):
                act()
        shown = CliRunner().invoke(main, ["stat", "--json", str(tmp_path)])
        assert "cannot be read" in next(iter(json.loads(shown.stdout)["holds"]))
        path.unlink()
        assert begins_at(store) > SEGMENT


def test_a_trim_and_a_hold_exclude_each_other(tmp_path: Path) -> None:
    """Whichever comes first: a hold that was given is kept, or was refused."""
    for _ in range(6):
        with fill(open_small(tmp_path), 20) as store:
            at, held = store.begin_offset, []

            def hold(store: Store = store, at: int = at, held: list[int] = held) -> None:
                try:
                    store.retention.hold("h", at)
                    held.append(at)
                except rocketstore.OffsetOutOfRangeError:
                    pass

            thread = threading.Thread(target=hold)
            thread.start()
            store.trim(before_offset=store.end_offset)
            thread.join()
            assert store.begin_offset == at if held else store.begin_offset > at
            store.retention.release("h")


def test_an_emergency_gives_a_hold_up_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fill(open_small(tmp_path)) as store:
        count = len(engine_of(store).reader.source.segments())
        store.retention.hold("snapshot", 0)
        Disk(monkeypatch, store, count)
        rule = Retention(emergency_watermark=0.5)
        assert store.retention.run(rule).emergency
        assert store.begin_offset > 0
        assert store.retention.events[-1].given_up == ("held by 'snapshot' (from 0)",)
        assert store.retention.holds == {"snapshot": 0}


def test_stat_shows_holds(tmp_path: Path) -> None:
    with fill(open_small(tmp_path)) as store:
        store.retention.hold("snapshot\x1b", SEGMENT)
    found = CliRunner().invoke(main, ["stat", str(tmp_path)])
    assert f"{SEGMENT:,}" in next(row for row in found.stdout.splitlines() if "snapshot" in row)
    assert "\x1b" not in found.stdout
    found = CliRunner().invoke(main, ["stat", "--json", str(tmp_path)])
    assert json.loads(found.stdout)["holds"] == {"snapshot\x1b": SEGMENT}
