"""`rocketstore follow`: a copy of a master that listens on loopback."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.commands import follow
from rocketstore.replication import Master, Peer, promote
from tests.cli.conftest import Invoke, Start
from tests.replication.broker.broker_like import BrokerLike
from tests.replication.broker.test_side_files import bodies
from tests.support.ports import free_address
from tests.support.small_store import SMALL, log_bytes, open_small
from tests.support.waiting import wait_until

PATIENCE_S = 120
#: A master that is there is found in less, also on a machine that stands still for a moment.
CONNECT_S = 5
#: A copy has files of the size that its master's have.
SHAPE = ("--segment-bytes", SMALL["commit_log_file_size_bytes"])


def open_master(path: Path, **settings: Any) -> rocketstore.Store:
    return open_small(path, replication=Master(**{"listen": "127.0.0.1:0", **settings}))


def followed(start: Start, *words: object) -> tuple[int, list[str], str]:
    """Exit code, lines and errors of a run that ends by itself."""
    child = start("follow", *words, *SHAPE, "--until-caught-up")
    output, errors = child.communicate(timeout=PATIENCE_S)
    return child.returncode, output.splitlines(), errors


def line_with(child: subprocess.Popen[str], text: str) -> str:
    """The first one that has it. Nothing before it is left for `communicate`."""
    assert child.stdout is not None
    for line in child.stdout:
        if text in line:
            return line
    raise AssertionError(f"{text!r} did not come: {child.communicate(timeout=PATIENCE_S)}")


def put_forty(master: rocketstore.Store) -> None:
    for number in range(40):
        master.writer("orders").put(b"%d" % number + b"x" * 200)


@pytest.mark.parametrize("protocol", ["rocketstore", "rocketmq"])
def test_a_copy_is_made_and_the_command_ends_when_it_has_all(
    start: Start, tmp_path: Path, protocol: Any
) -> None:
    soon = timedelta(milliseconds=100)
    with open_master(tmp_path / "master", protocol=protocol, heartbeat_every=soon) as master:
        words = (master.replication.address, tmp_path / "copy", "--protocol", protocol)
        put_forty(master)
        code, lines, errors = followed(start, *words, "--json")
        assert (code, errors) == (exit_codes.OK, "")
        last = json.loads(lines[-1])
        assert last["caught_up"]
        assert last["synced"] == last["end"] == master.end_offset
        assert last["lag_bytes"] == 0
        put_forty(master)
        code, lines, errors = followed(start, *words)
        assert (code, errors) == (exit_codes.OK, "")
        assert lines[-1] == f"{master.end_offset:,}  caught up"
    logs = [log_bytes(tmp_path / name).rstrip(b"\0") for name in ("master", "copy")]
    assert logs[0] == logs[1]


def test_the_master_is_asked_to_compress(start: Start, tmp_path: Path) -> None:
    with open_master(tmp_path / "master") as master:
        put_forty(master)
        words = (master.replication.address, tmp_path / "copy", "--compress", "zlib")
        child = start("follow", *words, *SHAPE)
        wait_until(lambda: [one.compression for one in master.replication.peers] == ["zlib"])
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=PATIENCE_S)


def test_ctrl_c_closes_the_copy_cleanly(start: Start, tmp_path: Path) -> None:
    with open_master(tmp_path / "master") as master:
        put_forty(master)
        child = start("follow", master.replication.address, tmp_path / "copy", *SHAPE, "--json")
        line_with(child, '"caught_up": true')
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, errors) == (exit_codes.INTERRUPTED, "")
    with rocketstore.open(tmp_path / "copy", "r") as reader:
        assert reader.recovery.mode == "clean"
        assert reader.max_queue_offset("orders", 0) == 40


def test_a_master_that_is_not_there_is_waited_for(start: Start, tmp_path: Path) -> None:
    address = free_address()
    with open_master(tmp_path / "master") as master:
        put_forty(master)
    child = start("follow", address, tmp_path / "copy", *SHAPE, "--until-caught-up")
    assert child.stdout is not None
    # Its first line may say "connecting": that depends on who is first, the refusal or the line.
    while "not connected: " not in (line := next(child.stdout)):
        assert line == "0  connecting\n"
    with open_master(tmp_path / "master", listen=address) as master:
        output, errors = child.communicate(timeout=PATIENCE_S)
        assert (child.returncode, errors) == (exit_codes.OK, "")
        assert output.splitlines()[-1] == f"{master.end_offset:,}  caught up"


def test_another_history_ends_with_3(start: Start, tmp_path: Path) -> None:
    ends = []
    for name in ("master", "other"):
        with open_master(tmp_path / name) as master:
            put_forty(master)
            ends.append(followed(start, master.replication.address, tmp_path / "copy"))
    assert ends[0][0] == exit_codes.OK
    code, _, errors = ends[1]
    assert code == exit_codes.DAMAGED
    assert "copies of different stores" in errors


@pytest.mark.parametrize("late", [False, True])
def test_what_a_new_master_lacks_is_cut_off_and_kept(
    start: Start, tmp_path: Path, late: bool
) -> None:
    """Also where the master comes later, so that the copy is open when it hears of it."""
    old, new = tmp_path / "old", tmp_path / "new"
    with open_master(old) as master:
        put_forty(master)
        assert followed(start, master.replication.address, new)[0] == exit_codes.OK
        common = master.end_offset
        put_forty(master)
    assert promote(new).end == common
    with rocketstore.open(new, replication=Master(listen="127.0.0.1:0")) as master:
        # Before the copy can connect: it ends once it has all that there is.
        master.writer("orders").put(b"of the new term")
    address, child = free_address(), None
    if late:
        child = start("follow", address, old, *SHAPE, "--until-caught-up")
        line_with(child, "not connected: ")
    with rocketstore.open(new, replication=Master(listen=address)):
        if child is not None:
            output, errors = child.communicate(timeout=PATIENCE_S)
            assert (child.returncode, errors) == (exit_codes.OK, "")
            lines = output.splitlines()
        else:
            code, lines, _ = followed(start, address, old)
            assert code == exit_codes.OK
    logs = [log_bytes(path).rstrip(b"\0") for path in (old, new)]
    assert logs[0] == logs[1]
    [kept] = (old / "rocketstore" / "quarantine").iterdir()
    [cut] = [line for line in lines if "cut off" in line]
    assert cut.startswith(f"{common:,}  cut off ")
    assert cut.endswith(f", 40 messages; a copy is in {kept}")
    assert bodies_of_cut(kept, tmp_path / "cut") == [b"%d" % n + b"x" * 200 for n in range(40)]


def bodies_of_cut(kept: Path, work: Path) -> list[bytes]:
    """As docs/replication.md reads what was cut off: each file as the log of a store."""
    found = []
    for file in sorted(kept.glob("[0-9]*")):
        log = work / file.name / "commitlog"
        log.mkdir(parents=True)
        shutil.copy(file, log)
        with rocketstore.open(log.parent, mode="r") as cut:
            found += [message.body for message in cut.consumer("orders")]
    return found


def test_a_cut_is_an_object_of_its_own(start: Start, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with open_master(old) as master:
        assert followed(start, master.replication.address, new)[0] == exit_codes.OK
        put_forty(master)
        end = master.end_offset
    promote(new)
    with open_master(new) as master:
        code, lines, _ = followed(start, master.replication.address, old, "--json")
    [kept] = (old / "rocketstore" / "quarantine").iterdir()
    assert code == exit_codes.OK
    [cut] = [found for found in map(json.loads, lines) if "cut" in found]
    assert cut == {"cut": [0, end], "messages": 40, "quarantine": [str(kept)]}


def test_an_error_without_a_text_has_its_name() -> None:
    assert follow._said_of(ConnectionResetError()) == "ConnectionResetError"
    assert follow._said_of(ConnectionResetError("why")) == "why"
    assert follow._said_of(None) is None


def test_a_key_is_read_from_its_file(start: Start, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"a key of some length\n")
    with open_master(tmp_path / "master", key=b"a key of some length") as master:
        put_forty(master)
        words = (master.replication.address, tmp_path / "copy", "--key-file", tmp_path / "key")
        assert followed(start, *words)[0] == exit_codes.OK


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("10912",), "HOST:PORT"),
        (("localhost:0",), "HOST:PORT"),
        (("localhost:10912", "--begin", "latest"), "--begin"),
        (
            ("localhost:10912", "--begin", "4096"),
            "--begin: 4096: 'oldest' or 'last-file'; with --protocol 'rocketmq' also",
        ),
        (("localhost:10912", "--key-file", "short"), "--key-file"),
        (("localhost:10912", "--key-file", "none"), "'none': No such file"),
        (("localhost:10912", "--protocol", "kafka"), "--protocol"),
    ],
)
def test_wrong_arguments_make_no_store(
    invoke: Invoke, tmp_path: Path, words: Any, said: str
) -> None:
    (tmp_path / "short").write_bytes(b"short\n")
    given = [str(tmp_path / word) if word == "short" else word for word in words]
    done = invoke("follow", given[0], tmp_path / "copy", *given[1:])
    assert done.exit_code == 2
    assert said in done.stderr
    assert "short\\n" not in done.stderr
    assert not (tmp_path / "copy").exists()


def test_a_store_of_its_own_does_not_become_a_copy(invoke: Invoke, store_path: Path) -> None:
    done = invoke("follow", "localhost:1", store_path)
    assert done.exit_code == exit_codes.FAILED
    assert "an empty directory of its own" in done.stderr


def test_what_the_broker_says_stands_in_the_lines(start: Start, tmp_path: Path) -> None:
    soon = timedelta(milliseconds=500)
    with (
        BrokerLike(bodies(1 << 40)) as broker,
        open_master(tmp_path / "master", protocol="rocketmq", heartbeat_every=soon) as master,
    ):
        put_forty(master)
        copy, address = tmp_path / "copy", master.replication.address
        words = (address, copy, "--protocol", "rocketmq", "--broker")
        code, lines, errors = followed(start, *words, broker.address, "--json")
        assert (code, errors) == (exit_codes.OK, "")
        assert {"topics", "groups", "last_error"} <= json.loads(lines[-1])["broker"].keys()
        broker.bodies = {}
        # Not until it has caught up: that may be before the broker was asked.
        child = start("follow", *words, broker.address, *SHAPE)
        line_with(child, "broker: ")
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=PATIENCE_S)
        assert (child.returncode, errors) == (exit_codes.INTERRUPTED, "")
        assert "  broker: " in output.splitlines()[-1]


def test_a_broker_wants_its_protocol(start: Start, tmp_path: Path) -> None:
    child = start("follow", "127.0.0.1:1", tmp_path, "--broker", "127.0.0.1:10911")
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 2
    assert "--broker" in errors


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("no-such-host.invalid", "host 'no-such-host.invalid': "),
        ("127.0.0.1", "Connect call failed"),
    ],
)
def test_nobody_to_follow_ends_the_command(
    start: Start, tmp_path: Path, host: str, said: str
) -> None:
    words = (f"{host}:1", tmp_path / "copy", "--connect-timeout", CONNECT_S)
    code, _, errors = followed(start, *words)
    assert code == exit_codes.FAILED
    assert f"{host}:1 has served no connection for {CONNECT_S} s: " in errors
    assert errors.count(said) == 1


def test_a_wrong_key_ends_the_command(start: Start, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"a key of other bytes")
    with open_master(tmp_path / "master", key=b"a key of some length") as master:
        words = (master.replication.address, tmp_path / "copy", "--key-file", tmp_path / "key")
        code, _, errors = followed(start, *words, "--connect-timeout", CONNECT_S)
    assert code == exit_codes.FAILED
    assert f"has served no connection for {CONNECT_S} s: " in errors
    assert errors.count("--key-file") == 1


def test_a_master_that_has_gone_ends_the_command(start: Start, tmp_path: Path) -> None:
    with open_master(tmp_path / "master") as master:
        words = (master.replication.address, tmp_path / "copy", "--connect-timeout", CONNECT_S)
        child = start("follow", *words, *SHAPE)
        line_with(child, "caught up")
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == exit_codes.FAILED
    assert f"has served no connection for {CONNECT_S} s: " in errors


def test_time_with_a_master_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        alone = store.replication
    now = 1000.0
    monkeypatch.setattr(follow.time, "monotonic", lambda: now)
    patience = follow._Patience("store-1:10912", 1.5)
    with_master = dataclasses.replace(
        alone, peers=(Peer("store-1:10912", 0, 0, 0, 0.0, 0, None),), last_error=OSError("refused")
    )
    for status in (with_master, with_master, dataclasses.replace(alone, bytes=7)):
        now += 60
        assert patience.ended_by(status) is None
    now += 1.4
    assert patience.ended_by(dataclasses.replace(alone, bytes=7)) is None
    now += 0.1
    ended = patience.ended_by(dataclasses.replace(with_master, peers=(), bytes=7))
    assert str(ended) == "store-1:10912 has served no connection for 1.5 s: refused"


@pytest.mark.parametrize("errors_to", [subprocess.STDOUT, subprocess.PIPE])
def test_what_ends_the_copy_is_said_once_in_each_stream(
    start: Start, tmp_path: Path, errors_to: int
) -> None:
    with open_master(tmp_path / "master", key=b"a key of some length") as master:
        words = (master.replication.address, tmp_path / "copy", *SHAPE)
        child = start("follow", *words, stderr=errors_to)
        output, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == exit_codes.DAMAGED
    why = "the replica has no key"
    # A line a second says it first, unless all attempts are over before the next one is due.
    if errors_to == subprocess.PIPE:
        assert errors.count(why) == 1
        assert output.count(why) <= 1
    else:
        assert output.count(why) == 1
        *lines, last = output.splitlines()
        if why in "".join(lines[-1:]):
            assert last == "rocketstore: the copy does not go on: the last line says why"
        else:
            assert last.startswith("rocketstore: ")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, exit_codes.INTERRUPTED), (signal.SIGTERM, exit_codes.TERMINATED)],
)
def test_the_last_line_says_how_far_the_copy_is(
    start: Start, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with open_master(tmp_path / "master") as master:
        put_forty(master)
        child = start("follow", master.replication.address, tmp_path / "copy", *SHAPE)
        line_with(child, "caught up")
        child.send_signal(number)
        output, errors = child.communicate(timeout=PATIENCE_S)
        assert (child.returncode, errors) == (code, "")
        assert output.splitlines()[-1] == f"stopped: {master.end_offset:,}  caught up"
