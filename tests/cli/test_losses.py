"""recover and repair name what is lost by topic, queue and offset; a dry run says the same."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.log.queues.consume_queue import ConsumeQueue
from tests.cli.conftest import SMALL, Invoke

SHAPE = ("--index-slots", 100, "--index-entries", 1000)


def filled(path: Path) -> list[tuple[int, int]]:
    """A store with 20 messages of two topics that was stopped cleanly; place and size of each."""
    with rocketstore.open(path, **SMALL) as store:
        puts = [
            store.put_message(("orders", "events")[number % 2], b"%d" % number)
            for number in range(20)
        ]
        return [(put.physical_offset, put.size) for put in puts]


def zero(path: Path, offset: int, size: int) -> None:
    with (path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(offset)
        file.write(bytes(size))


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """Another program's crash, by the marks: the last five records are zeros, the queues know
    them, and a group has consumed one of them."""
    path = tmp_path / "store"
    places = filled(path)
    for offset, size in places[-5:]:
        zero(path, offset, size)
    (path / "config").mkdir(exist_ok=True)
    text = '{"offsetTable":{"orders@billing":{"0":9},"events@audit":{"0":3}}}'
    (path / "config" / "consumerOffset.json").write_text(text)
    (path / "abort").touch()
    return path


LOST = {("orders", 0, 8, 9, 2), ("events", 0, 7, 9, 3)}
SET_BACK = [{"group": "billing", "topic": "orders", "queue_id": 0, "was": 9, "now": 8}]


def lost(found: dict[str, Any]) -> set[tuple[str, int, int, int, int]]:
    names = ("topic", "queue_id", "first", "last", "count")
    return {tuple(one[name] for name in names) for one in found["lost_messages"]}  # type: ignore[misc]


def content(path: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


def test_recover_names_what_it_cut_and_a_dry_run_the_same(invoke: Invoke, cut: Path) -> None:
    before = content(cut)
    dry = invoke("recover", cut, *SHAPE, "--dry-run", "--json")
    assert content(cut) == before
    old = (cut / "config" / "consumerOffset.json").read_bytes()
    ran = invoke("recover", cut, *SHAPE, "--json")
    for result in (dry, ran):
        assert result.exit_code == exit_codes.DAMAGED
        found = json.loads(result.stdout)
        assert lost(found) == LOST
        assert found["offsets_set_back"] == SET_BACK
    assert (cut / "rocketstore" / "quarantine" / "consumerOffset.json-0").read_bytes() == old
    again = invoke("recover", cut, *SHAPE)
    assert again.exit_code == 0, again.output


def test_recover_says_it_in_words(invoke: Invoke, cut: Path) -> None:
    result = invoke("recover", cut, *SHAPE)
    assert "lost: 5 messages that the queues knew" in result.stdout
    assert "events/0: 7 … 9 (3 messages) cut; stored 20" in result.stdout
    assert "group billing: orders/0 set back from 9 to 8" in result.stdout


def test_a_segment_that_is_gone(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "store"
    filled(path)
    (path / "commitlog" / f"{0:020d}").unlink()
    refused = invoke("recover", path, *SHAPE, "--dry-run")
    assert refused.exit_code == exit_codes.DAMAGED
    assert "missing" in refused.stderr
    for more in (["--dry-run"], []):
        result = invoke("recover", path, *SHAPE, "--force", "--json", *more)
        assert result.exit_code == exit_codes.DAMAGED
        assert lost(json.loads(result.stdout)) == {
            ("orders", 0, 0, 9, 10),
            ("events", 0, 0, 9, 10),
        }


def test_a_reader_and_a_writer_have_it_in_their_report(cut: Path, tmp_path: Path) -> None:
    shutil.copytree(cut, tmp_path / "copy")
    for mode, path in (("r", tmp_path / "copy"), ("r+", cut)):
        with rocketstore.open(path, mode, **SMALL) as store:
            report = store.recovery
            assert report.lost
            assert [(one.topic, one.first, one.last) for one in report.lost_messages] == [
                ("events", 7, 9),
                ("orders", 8, 9),
            ]
            assert {one.why for one in report.lost_messages} == {"cut"}
            assert [one.group for one in report.offsets_set_back] == ["billing"]
            assert "lost: 5 messages" in str(report)


def test_a_dry_run_beside_a_writer_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    filled(tmp_path / "store")
    with rocketstore.open(tmp_path / "store", **SMALL):
        result = invoke("recover", tmp_path / "store", *SHAPE, "--dry-run")
    assert result.exit_code == exit_codes.LOCKED, result.output


def test_repair_tells_what_its_recovery_cut(invoke: Invoke, tmp_path: Path) -> None:
    """The last record is torn after a clean stop: it had been acknowledged."""
    path = tmp_path / "store"
    offset, size = filled(path)[-1]
    zero(path, offset + size // 2, size - size // 2)
    for more in (["--dry-run"], []):
        result = invoke("repair", path, *SHAPE, "--json", *more)
        assert result.exit_code == exit_codes.DAMAGED
        found = json.loads(result.stdout)
        assert lost(found) == {("events", 0, 9, 9, 1)}
        assert found["cut"][0] == offset
        assert found["lost"] is True
    assert found["quarantine"]
    assert invoke("repair", path, *SHAPE).exit_code == 0


def test_repair_names_the_messages_of_damage(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "store"
    offset, _ = filled(path)[4]
    log = path / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(b"\0\0\0\x014", offset) + 4)
        file.write(b"?")
    dry = json.loads(invoke("repair", path, *SHAPE, "--json", "--dry-run").stdout)
    ran = json.loads(invoke("repair", path, *SHAPE, "--json").stdout)
    assert lost(dry) == lost(ran) == {("orders", 0, 2, 2, 1)}
    assert ran["lost_messages"][0]["why"] == "damaged"


def test_rebuild_tells_what_its_recovery_cut(invoke: Invoke, cut: Path) -> None:
    before = content(cut)
    for more in (["--dry-run"], []):
        assert content(cut) == before
        result = invoke("rebuild", cut, *SHAPE, "--json", *more)
        assert result.exit_code == exit_codes.DAMAGED, result.output
        found = json.loads(result.stdout)
        assert lost(found) == LOST
        assert found["offsets_set_back"] == SET_BACK


@pytest.mark.parametrize("which", ["all", "last", "first"])
def test_a_log_that_was_given_up_goes_on(invoke: Invoke, tmp_path: Path, which: str) -> None:
    """After `recover --force` every later command works, and no queue offset is used twice."""
    path = tmp_path / "store"
    with rocketstore.open(path, **SMALL) as store:
        for _ in range(30):
            end = store.put_message("orders", bytes(90_000)).queue_offset + 1
    log = sorted((path / "commitlog").iterdir())
    assert len(log) > 2
    for file in {"all": log, "last": log[-1:], "first": log[:1]}[which]:
        file.unlink()
    with pytest.raises(rocketstore.MissingSegmentsError):
        rocketstore.open(path)
    assert invoke("recover", path, "--force").exit_code == 3
    for number in range(3):
        with rocketstore.open(path) as store:
            store.put_message("orders", b"new %d" % number)
        if number == 0:
            assert invoke("recover", path).exit_code == 0
    assert {file.stat().st_size for file in (path / "commitlog").iterdir()} == {1 << 20}
    with rocketstore.open(path, "r") as store:
        last = store.max_queue_offset("orders", 0)
        assert which == "last" or last == end + 3
        with store.consumer("orders") as consumer:
            bodies = [message.body for message in consumer.poll(100)]
    assert bodies[-3:] == [b"new 0", b"new 1", b"new 2"]


def test_a_segment_that_is_a_link_is_named(invoke: Invoke, tmp_path: Path) -> None:
    """It is not missing: no command advises to give it up, and `--force` does not."""
    path = tmp_path / "store"
    filled(path)
    segment = path / "commitlog" / f"{0:020d}"
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")
    for words in (["recover"], ["recover", "--force"], ["rebuild"], ["repair"]):
        result = invoke(*words, path)
        assert result.exit_code == exit_codes.DAMAGED
        assert f"{segment} is a symbolic link" in result.stderr
        assert "--force" not in result.stderr
    result = invoke("tail", path, "orders", "-n", 1)
    assert result.exit_code == exit_codes.DAMAGED
    assert f"{segment} is a symbolic link" in result.stderr
    segment.unlink()
    (tmp_path / "elsewhere").rename(segment)
    assert invoke("tail", path, "orders", "-n", 1).exit_code == 0


def test_a_rebuild_without_room_says_how_much_it_needs(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    filled(path)

    def full(self: ConsumeQueue, queue_offset: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "room_for", full)
        result = invoke("rebuild", path)
    assert result.exit_code == exit_codes.FAILED
    assert "no room to make queues and index again: they need about " in result.stderr
    assert " are free; the old ones are unchanged" in result.stderr
    assert invoke("rebuild", path).exit_code == 0
