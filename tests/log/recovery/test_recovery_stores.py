"""Recovery of stores that RocketMQ wrote: what was acknowledged is served, what it gave up is not."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.format.scanner import Message
from rocketstore.errors import MissingSegmentsError
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout
from tests.support.log_store import (
    STORE_NAMES,
    STORES,
    image,
    open_log,
    records_of,
    recover_store,
    served,
    unpack_store,
)

VECTORS = json.loads((STORES.parent / "vectors.json").read_text())
MINI_STORE: dict[str, Any] = VECTORS["mini_store"]
SCENARIOS: dict[str, Any] = {row["id"]: row for row in MINI_STORE["scenarios"]}


def differences(message: Message, row: dict[str, Any]) -> list[str]:
    """Fields of a record that are not as they were acknowledged."""
    found = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_ts": message.born_timestamp_ms,
        "reconsume": message.reconsume_times,
        "prepared_offset": message.prepared_transaction_offset,
        "body_len": len(message.body),
        "body_sha1": hashlib.sha1(message.body).hexdigest(),
        "properties": message.properties,
        "physical_offset": message.physical_offset,
        "size": message.size,
        "queue_offset": message.queue_offset,
        "msg_id": message.message_id,
        "store_ts": message.store_timestamp_ms,
    }
    return [f"{name}: {value!r}" for name, value in found.items() if value != row[name]]


@pytest.mark.parametrize("name", STORE_NAMES)
@pytest.mark.parametrize("access", ["private", "write"])
def test_records_that_were_acknowledged_are_served(name: str, access: str, tmp_path: Path) -> None:
    layout, expected = unpack_store(name, tmp_path)
    before = image(layout.root)
    report, log = open_log(
        layout,
        ours=False,
        clean=not expected["abort_file"],
        access=access,  # type: ignore[arg-type]
    )
    messages = {message.physical_offset: message for message in records_of(log, report)}
    rows = {row["physical_offset"]: row for row in expected["acked"]}
    gone = {*expected["must_not"]["damaged"], *expected["must_not"]["stale"]}
    first = expected["must"]["first_log_offset"]
    must = {offset for offset in rows if offset >= first} - gone
    assert set(messages) == must
    assert set(expected["may"]) <= set(messages)
    wrong = {o: differences(m, rows[o]) for o, m in messages.items() if o not in expected["either"]}
    assert not any(wrong.values()), wrong
    log.close()
    if access == "private":
        assert image(layout.root) == before


@pytest.mark.parametrize("name", STORE_NAMES)
def test_second_recovery_changes_no_byte(name: str, tmp_path: Path) -> None:
    layout, expected = unpack_store(name, tmp_path)
    first = recover_store(layout, ours=False, clean=not expected["abort_file"])
    before = image(layout.root)
    second = recover_store(layout, ours=True, clean=False)
    assert image(layout.root) == before
    assert (second.end, second.damage) == (first.end, first.damage)


@pytest.mark.parametrize("name", STORE_NAMES)
def test_dispatch_begins_where_no_unit_is_missing(name: str, tmp_path: Path) -> None:
    layout, expected = unpack_store(name, tmp_path)
    report = recover_store(layout, ours=False, clean=not expected["abort_file"], access="private")
    ends = {
        (topic, queue_id): offset for topic, queue_id, _, offset, _ in expected["must"]["slots"]
    }
    assert report.start <= report.dispatch_start <= report.end
    if not any(layout.consume_queue.glob("*/*/*")):
        assert report.dispatch_start == report.begin
    assert ends or report.dispatch_start == report.begin


def test_damaged_record_in_the_middle_is_kept(tmp_path: Path) -> None:
    """RocketMQ would delete everything behind it."""
    layout, _ = unpack_store("damaged-533", tmp_path)
    before = image(layout.commit_log)
    report = recover_store(layout, ours=False)
    assert [(d.start, d.end, d.reason, d.topics) for d in report.damage] == [
        (11350, 11558, "body crc", ("payments",))
    ]
    kept = image(layout.commit_log)
    assert {name: before[name] for name in kept} == kept
    assert (Path(report.quarantine[0]) / f"{11350:020d}").exists()


def test_torn_record_is_cut_with_a_copy(tmp_path: Path) -> None:
    layout, expected = unpack_store("torn-533", tmp_path)
    report = recover_store(layout, ours=False)
    assert expected["must_not"]["damaged"] == [report.end] == [52898]
    assert report.cut == (52898, 53428)
    assert (Path(report.quarantine[0]) / f"{52898:020d}").stat().st_size == 530
    assert report.damage == ()


def test_queues_that_are_lost_are_filled_from_the_begin(tmp_path: Path) -> None:
    layout, _ = unpack_store("queues-lost-498", tmp_path)
    assert recover_store(layout, ours=False).dispatch_start == 0


# ---- the small store of the vectors, damaged in many ways ----


def make_scenario(name: str, root: Path) -> tuple[StoreLayout, bool]:
    """The store with the scenario's damage; whether it was stopped cleanly."""
    for path, content in MINI_STORE["files"].items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes.fromhex(content["hex"]).ljust(content["size"], b"\0"))
    for step in SCENARIOS[name]["damage"]:
        act, target = step[0], root / step[1]
        if act == "write":
            data = bytearray(target.read_bytes())
            change = bytes.fromhex(step[3])
            data[step[2] : step[2] + len(change)] = change
            target.write_bytes(data)
        elif act == "delete":
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        elif act == "zeros":
            target.write_bytes(bytes(step[2]))
        else:
            target.write_bytes(b"")
    layout = StoreLayout(root)
    make_directories(layout)
    return layout, not layout.abort.exists()


#: What is served: all 25 records but these.
LOST = {
    "clean": [],
    "after_crash": [],
    "bad_body_last_file": [22],
    "torn_tail": [24],
    "old_damage": [3],
    "old_damage_crash": [3],
    "old_damage_crash_late": [3],
    "queue_entry_lost": [],
    "queue_lost": [],
    "preallocated": [],
    "blank_too_long": [],
    "stale_tail": [],
}


@pytest.mark.parametrize("name", sorted(LOST))
def test_scenarios_lose_one_record_at_most(name: str, tmp_path: Path) -> None:
    """K-16: RocketMQ deletes what lies behind."""
    layout, clean = make_scenario(name, tmp_path)
    expected = [number // 10 * 1024 + number % 10 * 100 for number in range(25)]
    got = served(layout, ours=False, clean=clean, dispatch_from=0)
    assert got == [offset for n, offset in enumerate(expected) if n not in LOST[name]]


@pytest.mark.parametrize("name", ["middle_file_lost", "last_file_lost", "log_lost"])
def test_scenarios_with_missing_files_are_refused(name: str, tmp_path: Path) -> None:
    """D-25: the queues of a store that was stopped cleanly tell what is missing."""
    layout, clean = make_scenario(name, tmp_path)
    with pytest.raises(MissingSegmentsError):
        recover_store(layout, ours=False, clean=clean)


def test_first_file_may_have_expired(tmp_path: Path) -> None:
    layout, clean = make_scenario("first_file_lost", tmp_path)
    report = recover_store(layout, ours=False, clean=clean)
    assert (report.begin, report.end) == (1024, 2548)


def test_every_scenario_is_tested() -> None:
    missing = {"middle_file_lost", "last_file_lost", "log_lost", "first_file_lost"}
    assert missing | set(LOST) == set(SCENARIOS)


def test_stale_tail_of_a_rocketmq_is_told(tmp_path: Path) -> None:
    """D-28: time is no validity test; it only tells."""
    layout, clean = make_scenario("stale_tail", tmp_path)
    report = recover_store(layout, ours=False, clean=clean)
    assert any("may be stale" in note for note in report.notes)


def test_records_given_up_before_are_not_served(tmp_path: Path) -> None:
    """Format 15.4: behind a tear, numbers that were used again in front of it prove it."""
    layout, _ = make_scenario("stale_tail", tmp_path)
    last = layout.commit_log / f"{2048:020d}"
    data = bytearray(last.read_bytes())
    # The new record is number 24 and torn; the old ones behind it begin at number 23.
    data[200:300] = data[400:500]
    data[220:228] = (24).to_bytes(8, "big")
    data[228:236] = (2248).to_bytes(8, "big")
    data[320:400] = b"\x99" * 80
    last.write_bytes(data)
    report = recover_store(layout, ours=False)
    assert report.end == 2048 + 300
    assert any("given up" in note for note in report.notes)
    assert report.valid_runs
    assert (Path(report.quarantine[0]) / f"{2348:020d}").exists()


def test_stale_bytes_behind_a_clean_end_are_cut(tmp_path: Path) -> None:
    """D-08: a RocketMQ leaves them where it cut."""
    layout, clean = make_scenario("clean", tmp_path)
    last = layout.commit_log / f"{2048:020d}"
    data = bytearray(last.read_bytes())
    data[600:700] = b"\x99" * 100
    last.write_bytes(data)
    report = recover_store(layout, ours=False, clean=clean)
    assert (report.end, report.cut) == (2548, (2548, 2748))
    assert not any(last.read_bytes()[500:])
