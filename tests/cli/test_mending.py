"""recover and rebuild, on stores that are crashed, damaged, in use, or lack segments, queues or the index."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
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


#: The command line, which stops for ever where queues are made; in pieces, for a signal just before a wait, or one that
#: another thread gets, ends none.
WAITING = """
import sys, time
import rocketstore.tools
from rocketstore.cli.app import cli

def wait(job, parts):
    print("making", flush=True)
    while True:
        time.sleep(0.05)

sys.modules["rocketstore.tools.rebuild"]._Job.run_here = wait
cli.main()
"""


def test_what_was_lost_is_there_again(invoke: Invoke, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", **SMALL) as store:
        for number in range(30):
            store.writer("orders", queue_id=number % 2).put(b"%d" % number, keys=f"k{number}")
    shutil.rmtree(tmp_path / "s" / "consumequeue")
    shutil.rmtree(tmp_path / "s" / "index")
    result = invoke("rebuild", tmp_path / "s", "--workers", 2, *SHAPE)
    assert result.exit_code == exit_codes.OK, result.stderr
    assert "30 units in 2 queues and 1 index file" in result.stdout
    with rocketstore.open(tmp_path / "s", "r+", **SMALL) as store:
        assert store.recovery.mode == "clean"
        assert [m.body for m in store.query("orders", "k7")] == [b"7"]
        assert len(list(store.consumer("orders"))) == 30
        locked = invoke("rebuild", tmp_path / "s", *SHAPE)
        assert locked.exit_code == exit_codes.LOCKED
    found = json.loads(invoke("rebuild", tmp_path / "s", "--json", *SHAPE).stdout)
    assert (found["units"], found["queues"], found["odd"]) == (30, 2, "")


@pytest.mark.parametrize("size", [100, 300_000])
def test_a_rebuild_over_damage_is_code_3(invoke: Invoke, tmp_path: Path, size: int) -> None:
    """At the end of the log, where the open reads, and in a file that only the rebuild reads."""
    with rocketstore.open(tmp_path / "s", **SMALL) as store:
        results = [store.writer("orders").put(b"x" * size) for _ in range(9)]
    segment, *more = sorted((tmp_path / "s" / "commitlog").iterdir())
    assert len(more) == (2 if size == 300_000 else 0)
    content = bytearray(segment.read_bytes())
    content[results[2].physical_offset + 4] ^= 0xFF
    segment.write_bytes(content)
    result = invoke("rebuild", tmp_path / "s", *SHAPE)
    assert result.exit_code == exit_codes.DAMAGED
    assert "rocketstore repair" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_rebuild_leaves_the_clean_store_that_it_found(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    store = tmp_path / "s"
    with rocketstore.open(store, **SMALL) as opened:
        opened.writer("orders").put(b"x", keys="k")
    before = {
        path: path.read_bytes() for path in (store / "consumequeue").rglob("0*") if path.is_file()
    }
    command = [sys.executable, "-c", WAITING, "rebuild", store, *map(str, SHAPE)]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        # A test run in the background ignores Ctrl-C, and its children would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"making\n"
        assert (store / "rocketstore" / "rebuild").is_dir() and (store / "abort").exists()
        child.send_signal(number)
        assert child.wait(60) == code
    finally:
        child.kill()
        child.communicate()
    assert not (store / "rocketstore" / "rebuild").exists() and not (store / "abort").exists()
    assert {path: path.read_bytes() for path in before} == before
    with rocketstore.open(store, "r+", **SMALL) as opened:
        assert opened.recovery.mode == "clean"
