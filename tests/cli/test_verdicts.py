"""What `verify` says of a sound store and of each kind of fault: the advice mends it, and ends."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from tests.cli.conftest import Invoke
from tests.corruption.advice import follow_the_advice
from tests.support.made_store import MadeStore
from tests.support.small_store import dispatched

SHAPE = ("--index-slots", 100, "--index-entries", 1000)


def verdict(invoke: Invoke, path: Path) -> dict[str, Any]:
    result = invoke("verify", path, *SHAPE, "--json")
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if found["ok"] else exit_codes.DAMAGED)
    assert found["ok"] is (found["fault_count"] == 0)
    assert sum(found["kinds"].values()) == found["fault_count"]
    return found


def mend(path: Path) -> list[str]:
    """Runs what `verify` advises until it finds nothing; the names of the commands."""
    found = follow_the_advice(path, SHAPE)
    assert not found.fault
    assert found.verdicts[-1]["ok"]
    return found.commands


def log_file(path: Path, start: int = 0) -> Path:
    return path / "commitlog" / f"{start:020d}"


def append(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"more")


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 0xFF
    file.write_bytes(data)


def ahead(path: Path) -> None:
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"orders@billing":{0:9999}}}'
    )


def zero_tail(path: Path, count: int) -> None:
    """The last records are zeros, and the queues know them."""
    with rocketstore.open(path, "r") as store:
        end = store.end_offset
        with store.consumer("orders") as consumer:
            start = sorted(message.physical_offset for message in consumer.poll(1000))[-count]
    for offset in range(start, end):
        if offset % (1 << 20) == 0 or offset == start:
            with log_file(path, offset - offset % (1 << 20)).open("r+b") as stream:
                stream.seek(offset % (1 << 20))
                stream.write(bytes(min(end - offset, (1 << 20) - offset % (1 << 20))))


def crashed_tail(path: Path) -> None:
    zero_tail(path, 2)
    (path / "abort").touch()


def without(*names: str) -> Callable[[Path], None]:
    def remove(path: Path) -> None:
        for name in names:
            if (path / name).is_dir():
                shutil.rmtree(path / name)
            else:
                (path / name).unlink()

    return remove


FIRST, MIDDLE, LAST = (f"commitlog/{number << 20:020d}" for number in range(3))
#: What is done to a store, the kind and the code that it has, and the commands that mend it.
CASES: list[Any] = [
    (lambda path: flip(log_file(path), 150), "log", "", ["repair"]),
    (without(MIDDLE), "lost", "missing", ["repair"]),
    (without(LAST), "lost", "end", ["recover"]),
    (without(MIDDLE, LAST), "lost", "end", ["recover"]),
    (without(FIRST), "lost", "begin", ["recover"]),
    (without(FIRST, MIDDLE, LAST), "lost", "end", ["recover"]),
    (lambda path: zero_tail(path, 2), "lost", "tail", ["recover"]),
    (crashed_tail, "lost", "tail", ["recover"]),
    (without("consumequeue/orders"), "derived", "hidden", ["rebuild"]),
    (without("consumequeue"), "derived", "hidden", ["rebuild"]),
    (without("index"), "derived", "keys", ["rebuild"]),
    (lambda path: os.truncate(log_file(path, 1 << 20), 999), "lost", "missing", ["repair"]),
    (lambda path: append(log_file(path, 1 << 20)), "broker", "length", ["recover"]),
    (lambda path: append(log_file(path, 2 << 20)), "broker", "length", ["recover"]),
    (lambda path: log_file(path, 3 << 20).touch(), "broker", "length", ["recover"]),
    (
        lambda path: flip(path / "consumequeue" / "orders" / "0" / f"{0:020d}", 47),
        "derived",
        "",
        ["rebuild"],
    ),
    (ahead, "offsets", "", ["recover"]),
]


@pytest.mark.parametrize(("damage", "kind", "code", "commands"), CASES)
def test_each_kind_is_named_and_its_advice_mends_it(
    invoke: Invoke,
    long_path: Path,
    damage: Callable[[Path], object],
    kind: str,
    code: str,
    commands: list[str],
) -> None:
    assert verdict(invoke, long_path)["faults"] == []
    damage(long_path)
    found = verdict(invoke, long_path)
    assert (kind, code) in {(one["kind"], one["code"]) for one in found["faults"]}
    lost = sum(one["count"] for one in found["lost_messages"])
    assert (lost > 0) is (kind in ("lost", "log")), found["lost_messages"]
    assert bool(found["hidden_messages"]) is (kind == "derived" and code != "keys")
    advice = invoke("verify", long_path, *SHAPE).stderr.splitlines()[-1]
    assert " ".join(map(str, SHAPE)) in advice  # as verify was told
    if kind == "lost":  # one cause, one line
        assert len(found["faults"]) == 1, found["faults"]
    assert mend(long_path) == commands


BAD = ["", "{", '{"topicConfigTable":', "\0\0\0\0"]


@pytest.mark.parametrize("name", ["topics.json", "delayOffset.json", "consumerOffset.json"])
@pytest.mark.parametrize("text", BAD)
def test_a_side_file_that_holds_nothing(
    invoke: Invoke, store_path: Path, name: str, text: str
) -> None:
    config = store_path / "config"
    config.mkdir(exist_ok=True)
    (config / name).write_text(text)
    for copy, kind in ((None, "config"), ("", "config"), ("{", "broker")):
        if copy is not None:
            (config / f"{name}.bak").write_text(copy)
        found = verdict(invoke, store_path)
        assert [(one["kind"], one["code"]) for one in found["faults"]] == [(kind, "side-file")]
        assert str(config / name) == found["faults"][0]["file"]
    result = invoke("verify", store_path, *SHAPE)
    assert "RocketMQ refuses to start: neither" in result.stderr
    assert "rocketstore " not in result.stderr  # no command makes it
    (config / f"{name}.bak").write_text('{"dataVersion":{}}')
    found = verdict(invoke, store_path)
    assert found["ok"] and [one["kind"] for one in found["notices"]] == ["config"]
    (config / name).write_text("{}")
    assert verdict(invoke, store_path)["notices"] == []


@pytest.mark.parametrize(
    "place",
    ["commitlog/00000000000000000000.bak", "commitlog/.DS_Store", "consumequeue/orders/0/.nfs1"],
)
def test_a_name_that_keeps_a_broker_from_starting(
    invoke: Invoke, store_path: Path, place: str
) -> None:
    (store_path / place).write_bytes(b"x")
    found = verdict(invoke, store_path)
    assert [(one["kind"], one["code"]) for one in found["faults"]] == [("broker", "stray")]
    result = invoke("verify", store_path, *SHAPE)
    assert f"broker: {store_path / place} at 0: RocketMQ refuses to start: " in result.stderr
    assert "rocketstore rebuild" not in result.stderr
    (store_path / place).unlink()
    assert verdict(invoke, store_path)["ok"]


@pytest.mark.parametrize("place", ["index/.DS_Store", "commitlog/lost+found/"])
def test_a_name_that_harms_nothing_is_a_notice(
    invoke: Invoke, store_path: Path, place: str
) -> None:
    if place.endswith("/"):
        (store_path / place).mkdir()
    else:
        (store_path / place).write_bytes(b"x")
    result = invoke("verify", store_path, *SHAPE)
    assert result.exit_code == 0
    assert f"notice: {store_path / place}" in result.stderr
    assert "rocketstore rebuild" not in result.stderr
    (store_path / "index" / "20200101").write_bytes(b"x")
    found = verdict(invoke, store_path)
    assert [one["kind"] for one in found["faults"]] == ["broker"]


def test_a_record_whose_own_checksum_does_not_hold(invoke: Invoke, tmp_path: Path) -> None:
    """No advice makes the old units, which know more, go away; whoever knows better says so."""
    made = MadeStore(tmp_path / "store")
    made.fill(20)
    log = made.root / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    log.write_bytes(data.replace(b"refunded", b"xefunded", 1))
    units = (made.root / "consumequeue" / "orders" / "0" / f"{0:020d}").read_bytes()
    found = verdict(invoke, made.root)
    assert found["kinds"] == {"log": 1, "derived": 1}
    result = invoke("verify", made.root, *SHAPE)
    assert "record crc: its own checksum does not hold" in result.stderr
    assert "--allow-stale-crc" in result.stderr
    assert "rocketstore " not in result.stderr
    for words in (["rebuild"], ["rebuild", "--workers", 1]):
        result = invoke(*words, made.root, *SHAPE)
        assert result.exit_code == exit_codes.DAMAGED
        assert "record crc" in result.stderr and "--allow-stale-crc" in result.stderr
    file = made.root / "consumequeue" / "orders" / "0" / f"{0:020d}"
    assert file.read_bytes() == units
    assert invoke("rebuild", made.root, *SHAPE, "--allow-stale-crc").exit_code == 0
    assert invoke("verify", made.root, *SHAPE, "--allow-stale-crc").exit_code == 0
    assert invoke("verify", made.root, *SHAPE).exit_code == exit_codes.DAMAGED


def test_a_sound_store_is_code_0(invoke, store_path: Path) -> None:
    result = invoke("verify", store_path, *SHAPE)
    assert result.exit_code == 0, result.stderr
    assert "no faults" in result.output
    assert "31 records" in result.output


def test_the_remedy_of_a_torn_tail(invoke, store_path: Path) -> None:
    """Of a store that has crashed: `repair` would put a record in the place of what `recover` cuts off."""
    with rocketstore.open(store_path, "r") as store:
        end = store.end_offset
    with (store_path / "commitlog" / f"{0:020d}").open("r+b") as stream:
        stream.seek(end)
        stream.write(b"torn")
    assert invoke("verify", store_path, *SHAPE).stderr.splitlines()[-1].split()[1] == "repair"
    (store_path / "abort").touch()
    words = invoke("verify", store_path, *SHAPE).stderr.splitlines()[-1].split()
    assert words[:3] == ["rocketstore", "recover", str(store_path)]
    assert invoke(*words[1:7]).exit_code == 0
    assert invoke("verify", store_path, *SHAPE).exit_code == 0


def test_repair_gives_up_no_segment_unasked(invoke: Invoke, long_path: Path) -> None:
    log_file(long_path, 1 << 20).unlink()
    advice = invoke("verify", long_path, *SHAPE).stderr.splitlines()[-1]
    assert advice.startswith("restore what the log lacks from a copy, or rocketstore repair ")
    assert invoke("repair", long_path, *SHAPE).exit_code == exit_codes.DAMAGED


def test_the_remedy_of_a_store_that_is_named_from_here(
    invoke, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (store_path / "consumequeue" / "orders" / "0" / f"{0:020d}").open("r+b") as stream:
        stream.seek(47)
        stream.write(b"\x7f")
    monkeypatch.chdir(store_path.parent)
    result = invoke("verify", store_path.name, *SHAPE)
    assert result.stderr.splitlines()[-1].startswith(f"rocketstore rebuild {store_path.name} ")


def test_the_report_as_json(invoke, store_path: Path) -> None:
    found = json.loads(invoke("verify", store_path, *SHAPE, "--json").output)
    assert found["ok"] is True
    assert found["counts"]["records"] == 31
    assert found["faults"] == []


def test_beside_a_live_writer(invoke, store_path: Path) -> None:
    with rocketstore.open(store_path, "r+") as store:
        store.writer("orders").put(b"one more")
        dispatched(store)  # what is not in its queue yet is not looked at
        result = invoke("verify", store_path, *SHAPE)
    assert result.exit_code == 0, result.stderr
    assert "32 records" in result.output


def test_only_so_many_faults_are_shown(invoke, store_path: Path) -> None:
    file = store_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    with file.open("r+b") as stream:
        for unit in range(20):
            stream.seek(unit * 20 + 11)
            stream.write(b"\x7f")
    [fault, advice] = invoke("verify", store_path, *SHAPE, "--faults", 3).stderr.splitlines()
    assert f"{file} at 0: " in fault and fault.endswith(", and 19 more up to 380")
    assert advice.startswith("rocketstore rebuild ")
    result = invoke("verify", store_path, *SHAPE, "--faults", 0)
    assert result.exit_code == exit_codes.DAMAGED
    assert result.stderr.splitlines()[0] == "… and 20 more"
