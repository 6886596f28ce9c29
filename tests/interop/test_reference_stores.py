"""Stores that RocketMQ wrote, and brokers that are upgraded and go back, with us in between."""

from __future__ import annotations

import hashlib
import ipaddress
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.tools import rebuild, verify
from tests.interop.exchange import assert_sound, put_theirs
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import GENERATIONS, Oracle, since
from tests.interop.test_alternating import Directory
from tests.interop.views import RECORD_CRC, Tally, View, of_oracle, of_ours, oracle_message
from tests.support import paths
from tests.support.reference_stores import Expectation, compare, find_stores, open_reference

pytestmark = pytest.mark.java


STORES = find_stores(paths.STORES)
#: The name of an archive ends in the version that wrote it.
WRITERS = {version.replace(".", ""): version for version in GENERATIONS}
#: Each is read by its own release and by those that a broker is upgraded to.
CASES = [
    (version, expected)
    for expected in STORES
    for version in GENERATIONS
    if since(version, WRITERS[expected.name.rpartition("-")[2]])
]
#: A record's own fields in the expectation, and their names in a view.
FIELDS = {
    "born_ts": "born_timestamp_ms",
    "store_ts": "store_timestamp_ms",
    "reconsume": "reconsume_times",
    "prepared_offset": "prepared_transaction_offset",
    "msg_id": "message_id",
}
SAME_NAMES = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "flag", "sys_flag")
HOSTS = ("born_host", "store_host")
#: The delay levels of the archives are none then: RocketMQ 4 would deliver what is long due.
MORE_SETTINGS = {"messageDelayLevel": "5h 6h", "maxMsgsNumBatch": 10_000}


@pytest.fixture(scope="module")
def reader(version: str) -> Iterator[Oracle]:
    """Its stores are not shut down, which takes seconds each: they go with the JVM."""
    with Oracle(version) as started:
        yield started


@pytest.mark.parametrize(
    ("version", "expected"),
    CASES,
    indirect=["version"],
    ids=[f"{version}-{expected.name}" for version, expected in CASES],
)
def test_rocketmq_after_us(
    version: str, expected: Expectation, reader: Oracle, tally: Tally, tmp_path: Path
) -> None:
    """Slots with their tags codes, keys and fields; nothing new. Of a damaged store, what has to be there."""
    tally.scenarios += 1
    root = expected.unpack(tmp_path)
    with open_reference(expected, root, "rw") as store:
        assert compare(expected, store, "rw").mismatches == []
    theirs = reader.start(root, {**expected.config, **MORE_SETTINGS})
    view = of_oracle(theirs.dump())
    compare_slots(expected, view)
    # A damaged record is served as it is: RocketMQ looks at no checksum when it reads.
    sound = [m for at, m in view.messages().items() if at not in expected.must_not]
    for message in sound:
        compare_record(expected.acked[message["physical_offset"]], message, tally)
    for topic, key, physical_offsets in expected.index:
        answers = map(oracle_message, theirs.query(topic, key, 0, 2**62))
        found = {m["physical_offset"]: m for m in answers}
        wanted = set(physical_offsets)
        assert wanted <= set(found) <= wanted | expected.may | expected.must_not, (topic, key)
        for physical_offset in wanted:
            compare_record(expected.acked[physical_offset], found[physical_offset], tally)


def compare_slots(expected: Expectation, view: View) -> None:
    served = {
        name: {at: (m["physical_offset"], m["tags_code"]) for at, m in queue.items()}
        for name, queue in view.queues.items()
    }
    if not expected.may | expected.must_not:
        assert served == expected.slots
        return
    for name, slots in expected.slots.items():
        assert slots.items() <= served[name].items(), name
    allowed = expected.may | expected.must_not
    for name, found in served.items():
        for queue_offset, (physical_offset, _) in found.items():
            in_the_slot = expected.slots.get(name, {}).get(queue_offset, (None,))[0]
            assert in_the_slot == physical_offset or physical_offset in allowed


def compare_record(record: dict[str, Any], message: dict[str, Any], tally: Tally) -> None:
    """As `tests.support.reference_stores.compare` does it with our messages."""
    wanted = {name: record[name] for name in SAME_NAMES}
    wanted |= {ours: record[name] for name, ours in FIELDS.items()}
    for name in HOSTS:
        address, _, port = record[name].rpartition(":")
        wanted[name] = (ipaddress.ip_address(address.strip("[]")), int(port))
    wanted["body_crc"] = record["body_crc"] & 0x7FFFFFFF
    properties = record["properties"].items()
    wanted["properties"] = {name: value for name, value in properties if name != RECORD_CRC}
    tally.same_message(wanted, message, str(record["physical_offset"]))
    assert len(message["body"]) == record["body_len"]
    assert hashlib.sha1(message["body"]).hexdigest() == record["body_sha1"]


CHAINS = (
    ("4.9.8", "5.3.3", "5.5.1"),
    ("5.5.1", "5.3.3", "5.5.1"),
    ("5.5.1", "4.9.8"),
    ("5.3.3", "5.5.1"),
)


@pytest.mark.parametrize("stop", ["clean", "halted"])
@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_upgrades_and_downgrades(
    chain: tuple[str, ...], stop: str, rng: random.Random, tmp_path: Path
) -> None:
    """All that anybody acknowledged is there, in order, for each that comes next."""
    directory = Directory(tmp_path, Tally())
    for version in chain:
        with Oracle(version) as oracle:
            store = oracle.start(directory.path, SMALL)
            directory.theirs(rng, store)
            if stop == "clean":
                store.settle()
                store.shutdown()
        directory.ours(rng, clean=stop == "clean")
    with rocketstore.open(directory.path, config=config_of(SMALL)) as store:
        directory.check(of_ours(store))
    assert_sound(directory.path)


@pytest.mark.parametrize(("stop", "tool"), [("clean", "open"), ("crash", "rebuild")])
def test_what_ten_files_hide(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path, stop: str, tool: str
) -> None:
    """K-88: queues that were deleted come back for ten files. verify says what is missing; rebuild makes it,
    and so does an open."""
    if not since(version, "5.4"):
        pytest.skip("earlier releases look at the whole log")
    path = tmp_path / "store"
    sent = [Sent(queue_id=n % 2, body=b"%03d" % n + bytes(1500)) for n in range(200)]
    with oracle.open(path, SMALL) as theirs:
        put_theirs(theirs, sent)
        theirs.settle()
        whole = of_oracle(theirs.dump())
    assert len(list((path / "commitlog").iterdir())) > 12
    shutil.rmtree(path / "consumequeue")
    if stop == "crash":
        (path / "abort").touch()
    with oracle.open(path, SMALL) as theirs:
        theirs.settle()
        served = of_oracle(theirs.dump())
    assert 0 < len(served.messages()) < len(whole.messages())
    shape = {"index_slots": SMALL["maxHashSlotNum"], "index_entries": SMALL["maxIndexNum"]}
    assert not verify(path, **shape).ok
    if tool == "rebuild":
        rebuild(path, **shape)
    else:
        rocketstore.open(path, config=config_of(SMALL)).close()
    with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
        tally.same(whole, of_ours(ours))
    with oracle.open(path, SMALL) as theirs:
        tally.same(of_oracle(theirs.dump()), whole)
    assert_sound(path)
