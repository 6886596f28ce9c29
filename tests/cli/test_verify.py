"""verify, on a sound store and on damaged copies."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from tests.support.small_store import dispatched

SHAPE = ("--index-slots", 100, "--index-entries", 1000)


def test_a_sound_store_is_code_0(invoke, store_path: Path) -> None:
    result = invoke("verify", store_path, *SHAPE)
    assert result.exit_code == 0, result.stderr
    assert "no faults" in result.output
    assert "31 records" in result.output


@pytest.mark.parametrize("part", ["commitlog", "consumequeue/orders/0"])
def test_one_wrong_byte_is_code_3(invoke, store_path: Path, tmp_path: Path, part: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store_path, copy)
    file = copy / part / f"{0:020d}"
    with file.open("r+b") as stream:
        data = stream.read(400)
        stream.seek(150 if part == "commitlog" else 47)
        stream.write(bytes([data[stream.tell()] ^ 1]))
    result = invoke("verify", copy, *SHAPE)
    assert result.exit_code == exit_codes.DAMAGED
    assert str(file) in result.stderr
    assert invoke("verify", store_path, *SHAPE).exit_code == 0
    words = result.stderr.splitlines()[-1].split()
    assert words[:3] == ["rocketstore", "repair" if part == "commitlog" else "rebuild", str(copy)]
    assert words[3:7] == [str(word) for word in SHAPE]  # as verify was told
    assert invoke(*words[1:7]).exit_code == 0
    assert invoke("verify", copy, *SHAPE).exit_code == 0


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


@pytest.mark.parametrize("left", [None, 1000], ids=["missing", "too short"])
def test_the_remedy_of_missing_segments(invoke, store_path: Path, left: int | None) -> None:
    """Which `repair` refuses, unless it is to give them up."""
    with rocketstore.open(store_path, "r+") as store:
        writer = store.writer("orders")
        while store.end_offset < 5 << 19:
            writer.put(bytes(1 << 17))
    middle = store_path / "commitlog" / f"{1 << 20:020d}"
    if left is None:
        middle.unlink()
    else:
        os.truncate(middle, left)
    advice = invoke("verify", store_path, *SHAPE).stderr.splitlines()[-1]
    assert advice.startswith("restore what the log lacks from a copy, or rocketstore ")
    words = advice.partition("or rocketstore ")[2].split()[:7]
    assert invoke("repair", store_path, *SHAPE).exit_code == exit_codes.DAMAGED
    assert invoke(*words).exit_code == 0
    assert invoke("verify", store_path, *SHAPE).exit_code == 0


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
