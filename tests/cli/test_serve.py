"""`rocketstore serve`: a store that a process of its own holds open, for guests that come and go."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import FlagReason
from rocketstore.cli import exit_codes
from rocketstore.cli.commands import serve
from tests.cli.conftest import Invoke, Start
from tests.support.waiting import pause, wait_until

PATIENCE_S = 120
SHAPE = ("--segment-bytes", 1 << 16)
SMALL = {"commit_log_file_size_bytes": 1 << 16}


def lines_of(child: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert child.stdout is not None
    return map(json.loads, child.stdout)


def line_where(
    child: subprocess.Popen[str], holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    for line in lines_of(child):
        if holds(line):
            return line
    raise AssertionError(f"no such line: {child.communicate(timeout=PATIENCE_S)}")


def ended(child: subprocess.Popen[str], number: int) -> tuple[int, str, str]:
    child.send_signal(number)
    said, errors = child.communicate(timeout=PATIENCE_S)
    return child.returncode, said, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_guests_put_and_a_signal_closes_the_store_in_order(
    start: Start, tmp_path: Path, number: int
) -> None:
    child = start("serve", tmp_path / "s", *SHAPE, "--json")
    first = line_where(child, lambda line: True)
    assert first == {
        "pid": child.pid,
        "path": str(tmp_path / "s"),
        "guests": [],
        "puts": 0,
        "end": 0,
        "stopping": False,
    }
    with rocketstore.open(tmp_path / "s", shared="guest") as guest:
        guest.writer("orders").put_batch([b"one", b"two"])
        assert guest.stats().host_pid == child.pid
        line = line_where(child, lambda line: line["puts"] == 2)
        (mine,) = line["guests"]
        assert (mine["pid"], mine["puts"], mine["in_flight"]) == (os.getpid(), 2, 0)
        assert mine["bytes"] > 0 and 0 <= mine["heard_s"] < PATIENCE_S
    code, said, errors = ended(child, number)
    assert (code, errors) == (exit_codes.OK, "")
    last = json.loads(said.splitlines()[-1])
    assert (last["stopping"], last["puts"]) == (True, 2)
    with rocketstore.open(tmp_path / "s") as store:
        assert store.recovery.mode == "clean"
        assert [message.body for message in store.consumer("orders")] == [b"one", b"two"]


def test_lines_for_a_person(start: Start, tmp_path: Path) -> None:
    child = start("serve", tmp_path / "s", *SHAPE, "--durability", "os")
    assert child.stdout is not None
    begun = child.stdout.readline()
    assert begun.startswith(f"{tmp_path / 's'}  process {child.pid}  0 guests, ")
    with rocketstore.open(tmp_path / "s", shared="guest") as guest:
        assert guest.writer("orders").put(b"one").durability == "os"
    code, said, errors = ended(child, signal.SIGTERM)
    assert (code, errors) == (exit_codes.OK, "")
    assert said.splitlines()[-1].endswith("1 message stored")
    assert "  stopping  " in said.splitlines()[-1]


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_manager_hears_when_the_store_is_open_and_when_it_closes(
    start: Start, tmp_path: Path, abstract: bool
) -> None:
    name = f"@rocketstore-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(PATIENCE_S)
        manager.bind(name.replace("@", "\0"))
        child = start("serve", tmp_path / "s", *SHAPE, env={**os.environ, "NOTIFY_SOCKET": name})
        assert manager.recv(100) == b"READY=1"
        with pytest.raises(rocketstore.StoreLockedError, match=f"process {child.pid}"):
            rocketstore.open(tmp_path / "s")
        code, _, errors = ended(child, signal.SIGTERM)
        assert (code, errors) == (exit_codes.OK, "")
        assert manager.recv(100) == b"STOPPING=1"


def test_a_service_manager_that_is_not_there_is_named_and_ends_nothing(
    start: Start, tmp_path: Path
) -> None:
    gone = str(tmp_path / "gone")
    child = start("serve", tmp_path / "s", "--json", env={**os.environ, "NOTIFY_SOCKET": gone})
    line_where(child, lambda line: True)
    code, said, errors = ended(child, signal.SIGTERM)
    assert code == exit_codes.OK
    assert json.loads(said.splitlines()[-1])["stopping"]
    assert [gone in line for line in errors.splitlines()] == [True, True]


def test_a_store_that_another_process_holds_is_code_4(start: Start, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", **SMALL):
        child = start("serve", tmp_path / "s")
        said, errors = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, said) == (exit_codes.LOCKED, "")
    assert f"is locked by rocketstore process {os.getpid()}" in errors
    assert "shared=" not in errors  # an argument of Python


def test_it_waits_for_the_process_that_has_the_store(start: Start, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", **SMALL):
        child = start("serve", tmp_path / "s", "--wait", PATIENCE_S, "--json")
        pause(3)  # beyond the second that each open waits
    assert line_where(child, lambda line: True)["pid"] == child.pid
    assert ended(child, signal.SIGTERM)[0] == exit_codes.OK


def test_a_rule_of_retention_acts_upon_what_guests_put(start: Start, tmp_path: Path) -> None:
    child = start("serve", tmp_path / "s", *SHAPE, "--max-bytes", "128K", "--json")
    line_where(child, lambda line: True)
    with rocketstore.open(tmp_path / "s", shared="guest") as guest:
        for _ in range(40):
            guest.writer("orders").put(bytes(10_000))
        wait_until(lambda: guest.begin_offset > 0)
    assert ended(child, signal.SIGTERM)[0] == exit_codes.OK


def test_a_log_that_cannot_be_written_ends_it(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = rocketstore.open

    def opened_and_failed(*words: Any, **options: Any) -> rocketstore.Store:
        store = opened(*words, **options)
        store.flags.set(FlagReason.NOT_WRITEABLE, "the disk is gone")
        return store

    monkeypatch.setattr(rocketstore, "open", opened_and_failed)
    result = invoke("serve", tmp_path / "s", *SHAPE)
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr == "rocketstore: NOT_WRITEABLE: the disk is gone\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--keep-unshipped",), "nothing would go"),
        (("--keep-unconsumed-by", "g"), "nothing would go"),
        (("--max-age", "1h", "--keep-unconsumed-by", "g", "--keep-unconsumed-by", "all"), "every"),
        (("--wait", "-1"), "--wait"),
        (("--durability", "hope"), "--durability"),
    ],
)
def test_wrong_arguments(invoke: Invoke, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    result = invoke("serve", tmp_path / "s", *words)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not (tmp_path / "s").exists()


def test_a_line_comes_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Whatever the time that it was heard of says: nothing else has changed."""
    with rocketstore.open(tmp_path / "s", shared="host", **SMALL) as store:
        lines = serve._Lines(as_json=True)
        for _ in range(3):
            lines._at = -serve.LINE_S
            lines.show(store)
        lines.show(store, last=True)
    assert [json.loads(line)["stopping"] for line in capsys.readouterr().out.splitlines()] == [
        False,
        True,
    ]
