"""What surrounds a command: streams that are closed or full, a locale that is not UTF-8, signals that end it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.commands.bench import scratch_directory
from rocketstore.cli.standard_streams import open_closed


def run(*words: object, redirect: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocketstore.cli", *map(str, words)]
    if redirect:
        command = ["sh", "-c", f'exec "$@" {redirect}', "sh", *command]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.run(command, check=False, timeout=60, **{**piped, **options})


@pytest.fixture
def unread() -> Iterator[int]:
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.parametrize(
    "words",
    [("--help",), ("stat", "--help"), ("--version",), ("stat",), ("stat", "--json"), ("verify",)],
)
def test_without_a_reader(store_path: Path, unread: int, words: tuple[str, ...]) -> None:
    places = [] if words[-1] in ("--help", "--version") else [store_path]
    for env in ({}, {"PYTHONUNBUFFERED": "1"}):
        child = run(*words, *places, stdout=unread, env={**os.environ, **env})
        assert (child.returncode, child.stderr) == (exit_codes.NO_READER, "")


def test_an_error_without_a_reader(tmp_path: Path, unread: int) -> None:
    assert run("stat", tmp_path / "none", stderr=unread).returncode == exit_codes.NO_READER


def test_a_bench_saves_its_figures_all_the_same(disk_path: Path, unread: int) -> None:
    target = disk_path / "found.json"
    words = ("--seconds", 0.05, "--size", 100, "--durability", "os", "--directory", disk_path)
    child = run("bench", *words, "--json", target, stdout=unread)
    assert (child.returncode, child.stderr) == (exit_codes.NO_READER, "")
    assert json.loads(target.read_text())["results"]
    child = run("bench", *words, "--json", "/dev/full")
    assert (child.returncode, "put_batch of 1000" in child.stdout) == (exit_codes.FAILED, True)
    assert child.stderr == "rocketstore: /dev/full: No space left on device\n"


@pytest.mark.parametrize("words", [("--help",), ("stat",), ("verify",), ("tail",)])
@pytest.mark.parametrize("redirect", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed(store_path: Path, words: tuple[str, ...], redirect: str) -> None:
    places = {"tail": [store_path, "orders"], "--help": []}.get(words[0], [store_path])
    child = run(*words, *places, redirect=redirect)
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "words", [("--help",), ("stat",), ("stat", "--json"), ("verify",), ("tail", "orders")]
)
def test_full_is_said_of_standard_output(store_path: Path, words: tuple[str, ...]) -> None:
    """Nobody shall look for room on the disk of the store."""
    places = [] if words[0] == "--help" else [store_path]
    for env in ({}, {"PYTHONUNBUFFERED": "1"}):
        with open("/dev/full", "w") as full:
            child = run(words[0], *places, *words[1:], stdout=full, env={**os.environ, **env})
        assert child.returncode == exit_codes.FAILED
        assert child.stderr == "rocketstore: standard output: No space left on device\n"


def test_a_name_that_standard_output_cannot_encode(store_path: Path) -> None:
    (store_path / "config").mkdir(exist_ok=True)
    (store_path / "config" / "consumerOffset.json").write_text(
        '{"offsetTable": {"orders@组": {"0": 5}}}'
    )
    child = run("stat", store_path, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (child.returncode, child.stderr) == (0, "")
    assert any(line.startswith("\\u7ec4 ") for line in child.stdout.splitlines())


def test_no_file_gets_the_number_of_a_closed_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    open_closed()
    try:
        print("goes nowhere")
        assert sys.stdin.read() == ""
    finally:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.close()


def test_ingest_says_where_to_go_on_though_its_output_fails(tmp_path: Path, unread: int) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    with open("/dev/full", "w") as full:
        child = run("ingest", tmp_path / "s", lines, "--topic", "t", stdout=full)
    assert child.returncode == exit_codes.FAILED
    assert child.stderr.splitlines()[0] == "resume with --start-line 3"
    words = ("ingest", tmp_path / "s", lines, "--topic", "t", "--start-line", 3)
    child = run(*words, stdout=unread)
    assert (child.returncode, child.stderr) == (
        exit_codes.NO_READER,
        "resume with --start-line 3\n",
    )
    with rocketstore.open(tmp_path / "s", mode="r") as store:
        assert [message.body for message in store.consumer("t", offset="earliest")] == [b"a", b"b"]


LOCALES = [
    {"LC_ALL": "C"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.parametrize("locale", LOCALES, ids=["c", "c-without-utf8"])
def test_texts_of_arguments_are_utf8(tmp_path: Path, locale: dict[str, str]) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}
        arguments = [sys.executable, "-m", "rocketstore", *words]
        return subprocess.run(
            [argument.encode() for argument in arguments],
            env=kept | locale, cwd=tmp_path, capture_output=True, timeout=120, check=False,
        )  # fmt: skip

    (tmp_path / "in").write_bytes(b"one\n")
    words = ("ingest", "gr\u00fcn", "in", "--topic", "t", "--segment-bytes", "1048576")
    done = run(*words, "--tags", "gr\u00f6\u00dfe")
    assert done.returncode == 0, done.stderr
    found = run("tail", "gr\u00fcn", "t", "--tag", "gr\u00f6\u00dfe", "--format", "%g %s")
    assert (found.returncode, found.stdout.decode()) == (0, "gr\u00f6\u00dfe one\n")
    shown = run("stat", "gr\u00fcn")
    # An ASCII output gets the character's escape, never those of its bytes.
    assert shown.returncode == 0 and shown.stdout.splitlines()[0] in (
        "gr\u00fcn".encode(),
        rb"gr\xfcn",
    )
    refused = run("ingest", "gr\u00fcn", "in", "--topic", "t", "--tags", "a||\u00fc")
    assert refused.returncode == 2 and b"udc" not in refused.stderr


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
