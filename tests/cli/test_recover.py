"""recover, on a crashed store, a damaged one, and one whose segments are gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from tests.cli.conftest import SMALL, Invoke
from tests.support.copies import copy_if_there

SHAPE = ("--index-slots", 100, "--index-entries", 1000)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Two topics of a killed writer; the log goes on behind its last checkpoint."""
    with rocketstore.open(tmp_path / "live", **SMALL) as store:
        for number in range(30):
            store.put_message(("orders", "events")[number % 2], b"%d" % number)
        shutil.copytree(tmp_path / "live", tmp_path / "crashed", copy_function=copy_if_there)
    return tmp_path / "crashed"


def test_a_crashed_store(invoke: Invoke, crashed: Path) -> None:
    result = invoke("recover", crashed, *SHAPE)
    assert result.exit_code == 0, result.stderr
    assert "unclean open" in result.output
    rows = {line.split()[0]: line.split()[1:] for line in result.output.splitlines()[-2:]}
    assert rows == {"events": ["1", "15", "0", "0"], "orders": ["1", "15", "0", "0"]}
    with rocketstore.open(crashed, **SMALL) as store:
        assert store.recovery.mode == "clean"


def test_damage_is_code_3(invoke: Invoke, crashed: Path) -> None:
    with rocketstore.open(crashed, **SMALL):
        pass
    (crashed / "abort").touch()
    shutil.rmtree(crashed / "consumequeue")
    log = crashed / "commitlog" / f"{0:020d}"
    with rocketstore.open(crashed, "r", **SMALL) as store:
        # With its length: a time or checksum in front of it may hold the one byte of this body, too.
        body = store.get(0).body
        position = log.read_bytes().index(len(body).to_bytes(4, "big") + body) + 4
    with log.open("r+b") as file:
        file.seek(position)
        file.write(b"?")
    result = invoke("recover", crashed, *SHAPE, "--json")
    assert result.exit_code == exit_codes.DAMAGED
    found = json.loads(result.output)
    assert found["lost"] is True
    assert found["topics"]["orders"]["damaged_ranges"] == 1
    assert found["topics"]["events"] == {
        "queues": 1, "messages": 15, "damaged_ranges": 0, "cut_ranges": 0,
    }  # fmt: skip
    assert Path(found["quarantine"][0]).is_dir()


def test_missing_segments_need_force(invoke: Invoke, crashed: Path) -> None:
    with rocketstore.open(crashed, **SMALL):
        pass
    (crashed / "commitlog" / f"{0:020d}").unlink()
    result = invoke("recover", crashed, *SHAPE)
    assert result.exit_code == exit_codes.DAMAGED
    assert "are missing" in result.stderr
    assert "force" in result.stderr
    result = invoke("recover", crashed, *SHAPE, "--force")
    assert result.exit_code == exit_codes.DAMAGED, result.stderr
    assert "are missing" in result.output


def test_nothing_there(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("recover", tmp_path / "none")
    assert result.exit_code == exit_codes.FAILED
    assert not (tmp_path / "none").exists()


def test_it_says_what_it_does_not_read(invoke: Invoke, tmp_path: Path) -> None:
    """A record below the checkpoint is damaged: no count of this command may sound as if it had looked there."""
    root = tmp_path / "store"
    with rocketstore.open(root, **SMALL) as store:
        places = [store.put_message("orders", b"%d" % number * 400) for number in range(30)]
    log = root / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(places[3].physical_offset + 88)  # its body
        file.write(b"?")
    unread = (
        f"[0, {places[-1].end_offset}) was on the disk before, and is not read here for damage: "
    )
    for words in ((), ("--dry-run",)):
        result = invoke("recover", *words, root, *SHAPE)
        assert result.exit_code == 0, result.stderr
        assert unread + "verify does" in result.output.splitlines()
    assert invoke("verify", root, *SHAPE).exit_code == exit_codes.DAMAGED
    # A log that is read from its begin on leaves nothing out.
    (root / "rocketstore" / "checkpoint").unlink()
    result = invoke("recover", root, *SHAPE)
    assert result.exit_code == exit_codes.DAMAGED
    assert "is not read here" not in result.output
