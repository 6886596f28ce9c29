"""Something lies in place of a file or a directory of a queue: no offset is given twice, every
command says what is hidden and where, and all is served once the place is free."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from tests.support.copies import copy_if_there
from tests.support.small_store import SMALL, dispatched, open_small, parts

#: A file of a queue holds ten units.
COUNT = 37
SHAPE = [f"--index-{n}={SMALL[f'index_{n}']}" for n in ("slots", "entries")]
Thing = Callable[[Path], object]


def put_all(store: rocketstore.Store) -> None:
    for number in range(COUNT):
        for topic in ("a", "b"):
            store.writer(topic).put(b"%s-%03d" % (topic.encode(), number), keys=f"k{number}")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clean") / "s"
    with open_small(path) as store:
        put_all(store)
        consumer = store.consumer("b", group="g")
        consumer.poll(30)
        consumer.commit()
    return path


@pytest.fixture(scope="module")
def killed(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process leaves that is killed once all was dispatched and synced."""
    path = tmp_path_factory.mktemp("killed") / "s"
    with open_small(path.with_name("alive")) as store:
        put_all(store)
        consumer = store.consumer("b", group="g")
        consumer.poll(30)
        consumer.commit()
        parts(dispatched(store)).checkpointer.save(derived=True)
        shutil.copytree(path.with_name("alive"), path, copy_function=copy_if_there)
    return path


def linked(path: Path) -> None:
    path.symlink_to("/nowhere")


def directory(path: Path) -> None:
    path.mkdir()


THINGS = {"directory": directory, "link": linked}


def block_file(root: Path, thing: Thing, number: int = -1) -> Path:
    """`thing` in place of a file of `b`, as a rule the last one."""
    path = sorted((root / "consumequeue" / "b" / "0").iterdir())[number]
    path.unlink()
    thing(path)
    return path


def block_queue(root: Path) -> Path:
    path = root / "consumequeue" / "b" / "0"
    shutil.rmtree(path)
    path.write_bytes(b"x")
    return path


def free(path: Path) -> None:
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def bodies(store: rocketstore.Store, topic: str = "b") -> list[bytes]:
    with store.consumer(topic, reset="earliest") as consumer:
        found: list[bytes] = []
        while batch := consumer.poll(100):
            found += [message.body for message in batch]
        return found


def offsets_of_log(path: Path, topic: str = "b") -> list[int]:
    """Queue offsets of all records, as the log has them."""
    scan = rocketstore.scan(path, topics=[topic], columns=["queue_offset"])
    return sorted(int(number) for chunk in scan for number in chunk["queue_offset"])


@pytest.mark.parametrize("state", ["killed", "clean"])
@pytest.mark.parametrize("what", ["directory", "link", "middle", "queue"])
def test_recover_ends_with_3_and_no_offset_is_used_twice(
    state: str,
    what: str,
    clean: Path,
    killed: Path,
    tmp_path: Path,
    invoke: Callable[..., Any],
) -> None:
    path = tmp_path / "s"
    shutil.copytree(killed if state == "killed" else clean, path, symlinks=True)
    if what == "queue":
        place = block_queue(path)
    else:
        place = block_file(path, THINGS.get(what, directory), 1 if what == "middle" else -1)
    first, last = {"queue": (0, COUNT - 1), "middle": (10, 19)}.get(what, (30, COUNT - 1))
    expected = {"topic": "b", "queue_id": 0, "first": first, "last": last}

    found = invoke("verify", path, *SHAPE)
    assert found.exit_code == 3
    assert f"b/0: {first} … {last} ({last - first + 1} messages)" in found.stdout
    assert str(place) in found.stderr
    assert "out of the store" in found.stderr
    assert "next open makes" not in found.stdout

    reports = []
    for arguments in (["--dry-run"], [], []):
        shown = invoke("recover", path, "--json", *arguments)
        assert shown.exit_code == 3, shown.output
        report = json.loads(shown.stdout)
        [unplaced] = report["unplaced_messages"]
        assert str(place) in unplaced.pop("why")
        assert unplaced.pop("count") == last - first + 1
        assert unplaced == expected
        assert report["offsets_set_back"] == []
        reports.append(report["topics"])
    assert reports[0] == reports[1] == reports[2]
    assert "no place in their queues" in invoke("recover", path).stdout

    with open_small(path, "r") as reader:  # nobody writes: it makes the units in memory
        assert bodies(reader) == [b"b-%03d" % number for number in range(COUNT)]
    log = [file.read_bytes() for file in sorted((path / "commitlog").iterdir())]
    with open_small(path) as store:
        with pytest.raises(rocketstore.StoreBehindError, match="b/0"):
            store.writer("b").put(b"more")
        assert store.writer("a").put(b"more").queue_offset == COUNT
    assert log != [file.read_bytes() for file in sorted((path / "commitlog").iterdir())]
    assert offsets_of_log(path) == list(range(COUNT))

    free(place)
    assert invoke("recover", path).exit_code == 0
    with open_small(path) as store:
        assert bodies(store) == [b"b-%03d" % number for number in range(COUNT)]
        assert store.writer("b").put(b"more").queue_offset == COUNT
        assert store.consumer("b", group="g").poll(1)[0].queue_offset == 30
    assert invoke("verify", path, *SHAPE).exit_code == 0


@pytest.mark.parametrize("what", ["directory", "link"])
def test_rebuild_is_a_way_out(
    what: str, killed: Path, tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    path = tmp_path / "s"
    shutil.copytree(killed, path, symlinks=True)
    block_file(path, THINGS[what])
    assert "rebuild" in invoke("verify", path, *SHAPE).stderr
    assert invoke("rebuild", path).exit_code == 0
    assert invoke("verify", path, *SHAPE).exit_code == 0
    with open_small(path) as store:
        assert bodies(store) == [b"b-%03d" % number for number in range(COUNT)]


@pytest.mark.parametrize("part", ["commitlog", "consumequeue"])
def test_verify_names_what_stands_where_the_next_file_goes(
    part: str, clean: Path, tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    """Nothing is hidden yet."""
    path = tmp_path / "s"
    shutil.copytree(clean, path)
    root = path / part if part == "commitlog" else path / part / "b" / "0"
    last = sorted(root.iterdir())[-1]
    place = root / f"{int(last.name) + last.stat().st_size:020d}"
    place.mkdir()
    found = invoke("verify", path, *SHAPE)
    assert found.exit_code == 3
    assert str(place) in found.stderr
    assert found.stderr.splitlines()[-1].startswith("move what lies in place of")
    place.rmdir()
    assert invoke("verify", path, *SHAPE).exit_code == 0


def test_a_lost_last_file_is_looked_for_in_all_of_a_large_log(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash no saved end tells that the queue was longer."""
    path = tmp_path / "s"
    shutil.copytree(killed, path)
    sorted((path / "consumequeue" / "b" / "0").iterdir())[-1].unlink()
    monkeypatch.setattr("rocketstore.log.dispatch.missing_units.LOOK_BYTES", 1)
    with open_small(path) as store:
        [refilled] = store.recovery.refilled_queues
        assert (refilled.topic, refilled.first, refilled.last) == ("b", 30, COUNT - 1)
        assert store.writer("b").put(b"more").queue_offset == COUNT
    assert offsets_of_log(path) == list(range(COUNT + 1))


def test_an_offset_that_is_in_the_log_twice_is_named_and_advice_ends(
    clean: Path, tmp_path: Path, invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 0.1 gave one after a crash: the first message keeps its place, the other has none."""
    path = tmp_path / "s"
    shutil.copytree(clean, path)
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueueStore, "end_for_puts", lambda *_: 30)
        with open_small(path) as store:
            where = store.writer("b").put(b"second").physical_offset
    for command in (
        ["recover", "--dry-run"],
        ["recover"],
        ["rebuild"],
        ["repair", "--dry-run"],
        ["repair"],
    ):
        shown = invoke(command[0], path, *command[1:])
        assert shown.exit_code == 3, (command, shown.output)
        assert "b/0: 30 (1 message)" in shown.stdout
        assert f"physical offset {where}" in shown.stdout.replace(",", "")
        found = invoke("verify", path, *SHAPE)
        assert found.exit_code == 3
        assert "queue offset 30 follows 36" in found.stderr
        [advice] = [line for line in found.stderr.splitlines() if not line.startswith("log: ")]
        assert advice.startswith("no command gives a message a place")
    assert invoke("get", path, where, "--format", "%s").stdout.strip() == "second"
    with open_small(path) as store:
        assert bodies(store) == [b"b-%03d" % number for number in range(COUNT)]
        assert store.writer("b").put(b"again").queue_offset == COUNT
