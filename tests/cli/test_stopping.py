"""Ctrl-C and SIGTERM end every command alike: nothing is left that was made for a time."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.commands.bench import scratch_directory

SIGNALS = [(signal.SIGINT, exit_codes.INTERRUPTED), (signal.SIGTERM, exit_codes.TERMINATED)]
#: click's own, to go on below the ^C of a terminal.
SAID = {exit_codes.INTERRUPTED: "\n", exit_codes.TERMINATED: ""}


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_tail_that_follows(start, store_path: Path, number: int, code: int) -> None:
    child = start("tail", store_path, "orders", "--queue-id", 0, "-n", 1, "-f", "--format", "%s")
    assert child.stdout.readline() == "first 19\n"
    child.send_signal(number)
    assert child.communicate(timeout=60) == ("", SAID[code])
    assert child.returncode == code


def test_a_directory_is_removed_though_ctrl_c_ends_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = shutil.rmtree, []

    def rmtree(*words: Any, **named: Any) -> None:
        calls.append(words)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(*words, **named)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(KeyboardInterrupt), scratch_directory("made-", tmp_path) as made:
        (made / "inner").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_is_ignored_stays_so(store_path: Path) -> None:
    code = (
        "import os, signal, sys; from rocketstore.cli import main;"
        "from rocketstore.cli.commands import stat;"
        "stat.in_commands = lambda text: os.kill(os.getpid(), signal.SIGTERM) or text;"
        "sys.exit(main())"
    )
    for action, wanted in ((signal.SIG_IGN, 0), (signal.SIG_DFL, exit_codes.TERMINATED)):
        child = subprocess.run(
            [sys.executable, "-c", code, "stat", store_path],
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda action=action: signal.signal(signal.SIGTERM, action),
            check=False,
        )
        assert child.returncode == wanted
    with rocketstore.open(store_path, "r+") as store:
        assert store.recovery.mode == "clean"
