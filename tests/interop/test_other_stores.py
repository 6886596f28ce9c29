"""Stores of kinds that are read and not written here: extension units, batch queues, several log directories."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.log.queues.extension_units import ExtensionUnits, is_address
from tests.interop.exchange import assert_sound, put_theirs
from tests.interop.messages import HOSTS, SMALL, Sent, config_of
from tests.interop.oracle import Oracle
from tests.interop.views import Tally, View, of_oracle, of_ours

pytestmark = pytest.mark.java

TAGS = ("a", "Aa", "BB")


def tagged(count: int) -> list[Sent]:
    """Large enough that most of them lie in front of what a recovery dispatches again."""
    return [
        Sent(body=b"%03d" % n + bytes(1000), properties=(("TAGS", TAGS[n % 3]), ("KEYS", f"k{n}")))
        for n in range(count)
    ]


def numbers(store: rocketstore.Store, tags: str) -> list[int]:
    return [int(message.body[:3]) for message in store.consumer("Orders", tags=tags)]


def plain_codes(view: View) -> View:
    """The view with the tags codes of extension units: RocketMQ 4.9 tells addresses as they stand."""
    for queue in view.queues.values():
        for message in queue.values():
            if "extension" in message:
                message["tags_code"] = message["extension"][0]
    return view


def extended(path: Path, view: View) -> int:
    """How many units of a view hold the address of an extension unit. We find the same in each."""
    extension = ExtensionUnits(path / "consumequeue_ext/Orders/0")
    count = 0
    for (_, queue_offset), (_, _, code) in units(path, "Orders").items():
        found = extension.unit(code) if is_address(code) else None
        assert found == view.queues["Orders", 0][queue_offset].get("extension")
        if found is not None:
            count += 1
            assert found.bit_map == struct.pack(">q", ~queue_offset)
    extension.close()
    return count


def units(path: Path, topic: str) -> dict[tuple[int, int], tuple[int, int, int]]:
    """(queue id, queue offset) → physical offset, size and tags code, as they stand on disk."""
    found = {}
    for file in (path / "consumequeue" / topic).glob("*/0*"):
        for number, unit in enumerate(struct.iter_unpack(">qiq", file.read_bytes())):
            if unit[1] > 0:
                found[int(file.parent.name), int(file.name) // 20 + number] = unit
    return found


def test_extension_units(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """Units hold addresses of others, which hold the tags codes. Tags are found all the same, beside a
    live RocketMQ and after it; both go on, and RocketMQ reads what it has then."""
    path = tmp_path / "store"
    settings = {**SMALL, "enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1000}
    wanted = {tags: list(range(number, 180, 3)) for number, tags in enumerate(TAGS)}
    with oracle.open(path, settings) as theirs:
        for result in theirs.put([sent.for_oracle() for sent in tagged(180)]):
            assert result["status"] == "PUT_OK"
        theirs.settle()
        view = of_oracle(theirs.dump())
        with rocketstore.open(path, "r", config=config_of(settings)) as ours:
            assert {tags: numbers(ours, tags) for tags in TAGS} == wanted
            live = of_ours(ours)
        assert extended(path, view) == 180
    assert extended(path, view) == 180
    assert len(list((path / "consumequeue_ext/Orders/0").iterdir())) > 3
    tally.same(plain_codes(view), live)
    assert_sound(path)
    for mode in ("r", "rw"):
        with rocketstore.open(path, mode, config=config_of(settings)) as ours:
            assert {tags: numbers(ours, tags) for tags in TAGS} == wanted
            tally.same(view, of_ours(ours))
            if mode == "rw":
                for sent in tagged(30):
                    sent.put(ours)
    with rocketstore.open(path, "r", config=config_of(settings)) as ours:
        view = of_ours(ours)
    with oracle.open(path, settings) as theirs:
        tally.same(plain_codes(of_oracle(theirs.dump())), view)
        theirs.put([sent.for_oracle() for sent in tagged(30)])
        theirs.settle()
        view = of_oracle(theirs.dump())
    assert view.bounds == {("Orders", 0): (0, 240)}
    with rocketstore.open(path, "r", config=config_of(settings)) as ours:
        assert extended(path, view) > 30
        tally.same(plain_codes(view), of_ours(ours))
        assert len(numbers(ours, "Aa")) == 80


def element(body: bytes, properties: str = "") -> bytes:
    """One message of a batch as its producer packs it."""
    text = properties.encode()
    head = struct.pack(">5i", 22 + len(body) + len(text), 0, 0, len(body), len(body))
    return head + body + struct.pack(">h", len(text)) + text


def inner_batch(number: int) -> Sent:
    """A record of one to seven messages, every third compressed, large enough that the log rolls."""
    body = b"".join(
        element(b"%d-%d" % (number, part) + bytes(300), f"TAGS\x01{TAGS[part % 3]}\x02n\x01{part}")
        for part in range(number % 7 + 1)
    )
    packed = number % 3 == 0
    return Sent(
        topic="InnerBatches",
        queue_id=number % 2,
        sys_flag=0x3C1 if packed else 0xC0,
        body=zlib.compress(body) if packed else body,
        born_host=HOSTS[number % 3],
        store_host=HOSTS[(number // 2) % 3],
        properties=(("INNER_NUM", str(number % 7 + 1)), ("TAGS", "a"), ("KEYS", f"k{number}")),
    )


#: Of the record in RocketMQ's eyes, or not told: each message here is as if it had a record of its own.
OF_RECORDS = ("size", "sys_flag", "message_id", "tags_code", "body_crc")


def one_by_one(view: View) -> View:
    """The view as RocketMQ's client hands it out: the parts of records that are batches."""
    queues = {}
    for name, queue in view.queues.items():
        queues[name] = dict(queue)
        for queue_offset, message in queue.items():
            for part in message.get("parts", ()):
                fields = {key: part[key] for key in part if key not in OF_RECORDS}
                del fields["properties"]["WAIT"]  # the client's own
                queues[name][part["queue_offset"]] = fields
            if "parts" in message:
                assert message["parts"][0]["queue_offset"] == queue_offset
                assert len(message["parts"]) == int(message["properties"]["INNER_NUM"])
    ordered = {name: dict(sorted(queue.items())) for name, queue in queues.items()}
    return View(view.begin, view.end, ordered, view.bounds)


def test_batch_queues(oracle: Oracle, version: str, tally: Tally, tmp_path: Path) -> None:
    """Messages of batches one by one, as RocketMQ's client hands them out: beside a live RocketMQ, after its
    stop and after a crash, with or without their units. For writing it is refused, when RocketMQ would not
    load the store any more."""
    if version == "4.9.8":
        pytest.skip("4.9.8 has no batch queues")
    path = tmp_path / "store"
    settings = {**SMALL, "mapperFileSizeBatchConsumeQueue": 10 * 46}
    packed = [inner_batch(number) for number in range(60)]
    with oracle.open(path, settings) as theirs:
        put_theirs(theirs, packed[:30])
        theirs.settle()
        with rocketstore.open(path, "r", config=config_of(settings)) as ours:
            tally.same(one_by_one(of_oracle(theirs.dump())), of_ours(ours))
            put_theirs(theirs, [*packed[30:], *tagged(5)])
            theirs.settle()
            told = of_oracle(theirs.dump())
            view = one_by_one(told)
            tally.same(view, of_ours(ours))
        stored = [
            (queue_id, message["queue_offset"], message["store_timestamp_ms"])
            for queue_id in range(2)
            for message in told.queues["InnerBatches", queue_id].values()
        ]
        for queue_id, _, when in stored:
            first = min(at for q, at, stored_ms in stored if q == queue_id and stored_ms >= when)
            theirs_at = theirs.offset_by_time("InnerBatches", queue_id, when, upper=False)
            if theirs_at != first:
                tally.know("Q-49")
    assert len(list((path / "batchconsumequeue/InnerBatches/0").iterdir())) == 3
    crashed = tmp_path / "crashed"
    shutil.copytree(path, crashed)
    (crashed / "abort").touch()
    lost = tmp_path / "lost"
    shutil.copytree(crashed, lost)
    for file in (lost / "batchconsumequeue/InnerBatches").glob("*/0*"):
        file.write_bytes(file.read_bytes()[:92].ljust(460, b"\0") if int(file.name) else bytes(460))
    (lost / "checkpoint").unlink()  # so that a recovery begins in front
    for root in (path, crashed, lost):
        with rocketstore.open(root, "r", config=config_of(settings)) as ours:
            tally.same(view, of_ours(ours))
            for number, sent in enumerate(packed):
                (found,) = ours.query("InnerBatches", f"k{number}")
                assert found.body == ours.get(found.physical_offset).body == sent.body
            for queue_id, _, when in stored:
                first = min(
                    at for q, at, stored_ms in stored if q == queue_id and stored_ms >= when
                )
                assert ours.offset_at("InnerBatches", queue_id, when) == first
        with pytest.raises(rocketstore.ConfigError, match="batch queues"):
            rocketstore.open(root, config=config_of(settings))
    assert_sound(path)
    for root in (path, crashed, lost):
        with oracle.open(root, settings) as theirs:
            tally.same(one_by_one(of_oracle(theirs.dump())), view)


def test_several_directories(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """Beside a live RocketMQ that rolls from one into the other, after its stop and after a crash the whole
    log is read; without its settings it is not written. RocketMQ goes on with it."""
    path = tmp_path / "store"
    (path / "old").mkdir(parents=True)
    paths = ",".join(str(path / name) for name in ("commitlog", "more"))
    settings: dict[str, Any] = {
        **SMALL,
        "storePathCommitLog": paths,
        "readOnlyCommitLogStorePaths": str(path / "old"),
    }
    with oracle.open(path, settings) as theirs:
        theirs.put([sent.for_oracle() for sent in tagged(50)])
        theirs.settle()
        with rocketstore.open(path, "r", config=config_of(settings)) as ours:
            tally.same(of_oracle(theirs.dump()), of_ours(ours))
            theirs.put([sent.for_oracle() for sent in tagged(50)])
            theirs.settle()
            view = of_oracle(theirs.dump())
            tally.same(view, of_ours(ours))
            assert numbers(ours, "Aa") == [*range(1, 50, 3)] * 2
    first = path / "commitlog" / f"{0:020d}"
    first.rename(path / "old" / first.name)
    files = {name: len(list((path / name).iterdir())) for name in ("commitlog", "more", "old")}
    assert min(files.values()) >= 1
    assert sum(files.values()) >= 6
    crashed = tmp_path / "crashed"
    shutil.copytree(path, crashed)
    (crashed / "abort").touch()
    moved = {name: str(value).replace(str(path), str(crashed)) for name, value in settings.items()}
    for root, given in ((path, settings), (crashed, moved)):
        with rocketstore.open(root, "r", config=config_of(given)) as ours:
            tally.same(view, of_ours(ours))
        with pytest.raises(rocketstore.ConfigError, match="several directories"):
            rocketstore.open(root, config=config_of(given))
        with pytest.raises(rocketstore.MissingSegmentsError):
            rocketstore.open(root, config=config_of(SMALL))
    with rocketstore.open(path, "r", config=config_of(SMALL), force=True) as ours:
        assert "commit_log_dir" in str(ours.recovery.notes)
    with oracle.open(path, settings) as theirs:
        tally.same(of_oracle(theirs.dump()), view)
        theirs.put([sent.for_oracle() for sent in tagged(5)])
        theirs.settle()
        view = of_oracle(theirs.dump())
    with rocketstore.open(path, "r", config=config_of(settings)) as ours:
        tally.same(view, of_ours(ours))
    whole = tmp_path / "whole"
    shutil.copytree(path, whole)
    for name in ("more", "old"):
        for file in (whole / name).iterdir():
            file.rename(whole / "commitlog" / file.name)
    for mode in ("r", "rw"):
        with rocketstore.open(whole, mode, config=config_of(SMALL)) as ours:
            tally.same(view, of_ours(ours))
