"""Kinds of messages that a store treats apart: transactions, addresses, delays, light queues, checksums."""

from __future__ import annotations

import itertools
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore._native.format.codec import encode_record
from tests.interop.exchange import put_ours, put_theirs, served
from tests.interop.messages import BORN_MS, HOSTS, SMALL, Sent, config_of, oracle_batch
from tests.interop.oracle import Oracle, OracleStore, since
from tests.interop.views import RECORD_CRC, Tally, View, of_oracle, of_ours

pytestmark = pytest.mark.java

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


def keyed_by_them(store: OracleStore, topic: str, keys: list[str]) -> list[list[int]]:
    answers = [store.query(topic, key, 0, 1 << 60) for key in keys]
    return [sorted(message["physical_offset"] for message in answer) for answer in answers]


def keyed_by_us(store: rocketstore.Store, topic: str, keys: list[str]) -> list[list[int]]:
    return [sorted(m.physical_offset for m in store.query(topic, key)) for key in keys]


def test_transactions_and_addresses(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """Prepared and rolled back messages have queue offset 0 and no unit; rolled back ones no key. Every
    kind with every pair of address lengths."""
    pairs = itertools.product(HOSTS[1:3], HOSTS[1:3])
    kinds = (0, PREPARED, COMMIT, ROLLBACK, 0)
    steps = [
        Sent(
            queue_id=kind % 3,
            body=b"%d" % number,
            sys_flag=kind,
            born_host=born,
            store_host=store,
            prepared_transaction_offset=number if kind in (COMMIT, ROLLBACK) else 0,
            properties=(("KEYS", f"k{number}"), ("UNIQ_KEY", f"{number:032X}")),
        )
        for number, ((born, store), kind) in enumerate(itertools.product(pairs, kinds))
    ]
    keys = [f"k{number}" for number in range(len(steps))]
    path = tmp_path / "theirs"
    with oracle.open(path, SMALL) as theirs:
        acked = put_theirs(theirs, steps)
        theirs.settle()
        view = of_oracle(theirs.dump())
        found = keyed_by_them(theirs, "Orders", keys)
    served(tally, acked, view)
    for mode in ("r", "rw"):
        with rocketstore.open(path, mode, config=config_of(SMALL)) as ours:
            tally.same(view, of_ours(ours))
            assert keyed_by_us(ours, "Orders", keys) == found
            for _, result in acked:  # those without a unit, too
                message = ours.get(result["physical_offset"])
                assert message.queue_offset == result["queue_offset"]
                assert message.message_id == result["message_id"]
    with rocketstore.open(tmp_path / "ours", config=config_of(SMALL)) as ours:
        own = put_ours(ours, steps)
    names = ("physical_offset", "queue_offset", "size", "message_id")
    assert [[r[n] for n in names] for _, r in own] == [[r[n] for n in names] for _, r in acked]
    with rocketstore.open(tmp_path / "ours", "r", config=config_of(SMALL)) as ours:
        view = of_ours(ours)
        served(tally, own, view)
    with oracle.open(tmp_path / "ours", SMALL) as theirs:
        tally.same(of_oracle(theirs.dump()), view)
        assert keyed_by_them(theirs, "Orders", keys) == found
    for sent, at in zip(steps, found, strict=True):
        assert len(at) == (sent.sys_flag != ROLLBACK)


def delayed(path: Path) -> int:
    """Messages of ours as RocketMQ keeps them until they are due, in one file of the log; how many."""
    levels = ("1", "2", "3", "+2", "99", "0", "-1")
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        for number, level in enumerate(levels * 9):
            Sent(
                topic="SCHEDULE_TOPIC_XXXX",
                queue_id=number % 7,
                body=b"%d" % number,
                properties=(("TAGS", "a"), ("DELAY", level), ("REAL_TOPIC", "Orders")),
            ).put(ours)
        # A copy that RocketMQ delivered keeps all three.
        place = ("REAL_TOPIC", "Orders"), ("REAL_QID", "0")
        Sent(properties=(("TAGS", "a"), ("DELAY", "2"), *place)).put(ours)
        assert ours.end_offset < SMALL["mappedFileSizeCommitLog"]
    return len(levels) * 9 + 1


def units(path: Path) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(queue, number) → physical offset, size and tags code of every unit."""
    found = {}
    for file in sorted((path / "consumequeue").glob("*/*/0*")):
        for number, unit in enumerate(struct.iter_unpack(">qiq", file.read_bytes())):
            if unit[1] > 0:
                found[str(file.relative_to(path)), number] = unit
    return found


def test_delivery_times_of_one_log(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    """Both make the same units of delayed messages, levels beyond the last and below the first included."""
    path = tmp_path / "store"
    count = delayed(path)
    wanted = units(path)
    assert len(wanted) == count
    tally.scenarios += 1
    for crashed in (False, True):
        rebuilt = tmp_path / f"rebuilt-{crashed}"
        shutil.copytree(path, rebuilt)
        shutil.rmtree(rebuilt / "consumequeue")
        if crashed:
            (rebuilt / "abort").touch()
        with oracle.open(rebuilt, SMALL) as theirs:
            theirs.settle()
        found = units(rebuilt)
        tally.messages += count
        for place, unit in wanted.items():
            if found[place] != unit:
                # It recovers before it has read its levels: all of them are due at once.
                assert (version, crashed) == ("4.9.8", True)
                assert found.pop(place) == (*unit[:2], ord("a"))
                tally.know("Q-44")
        assert found.items() <= wanted.items()
        shutil.rmtree(rebuilt / "consumequeue")
        rocketstore.open(rebuilt, config=config_of(SMALL)).close()
        assert units(rebuilt) == wanted


def test_our_checksum_in_their_record(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """RocketMQ, as it comes, puts our message again with all the properties it decoded: the checksum is
    none of the new record. Wherever it stands, the record is read at once and after a crash."""
    path = tmp_path / "store"
    steps = [Sent(body=b"%d" % n, properties=(("KEYS", f"k{n}"),)) for n in range(9)]
    with rocketstore.open(path, config=config_of(SMALL, record_crc=True)) as ours:
        put_ours(ours, [*steps, Sent(body=b"bare")])
    with oracle.open(path, SMALL) as theirs:
        (queue,) = [q for q in theirs.dump()["queues"] if q["messages"]]
        for message in queue["messages"]:
            checksum = (RECORD_CRC, message["properties"].pop(RECORD_CRC))
            others = tuple(message["properties"].items())
            again = [Sent(properties=(*others, checksum)), Sent(properties=(checksum, *others))]
            put_theirs(theirs, again)
        theirs.settle()
        view = of_oracle(theirs.dump())
    assert view.bounds == {("Orders", 0): (0, 30)}
    crashed = tmp_path / "crashed"
    shutil.copytree(path, crashed)
    (crashed / "abort").touch()
    for root, mode in itertools.product((path, crashed), ("r", "rw", "r")):
        with rocketstore.open(root, mode, config=config_of(SMALL)) as ours:
            tally.same(view, of_ours(ours))
            assert [len(x) for x in keyed_by_us(ours, "Orders", ["k0", "k8"])] == [3, 3]
    with oracle.open(crashed, SMALL) as theirs:
        tally.same(of_oracle(theirs.dump()), view)


def test_light_queues_that_go_on(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """One message in several queues, each with numbers of its own, which the next writer goes on from."""
    settings: dict[str, Any] = {**SMALL, "enableMultiDispatch": True, "enableLmq": True}
    listed = (("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b"),)
    steps = [
        Sent(queue_id=1, body=b"%d" % n, properties=listed if n % 3 else ()) for n in range(30)
    ]
    path = tmp_path / "store"
    view = View(0, 0, {}, {})
    for _ in range(2):
        with oracle.open(path, settings) as theirs:
            tally.same(of_oracle(theirs.dump()), view)
            put_theirs(theirs, steps)
            theirs.settle()
            view = of_oracle(theirs.dump())
        with rocketstore.open(path, config=config_of(settings)) as ours:
            tally.same(view, of_ours(ours))
            put_ours(ours, steps)
        with rocketstore.open(path, "r", config=config_of(settings)) as ours:
            view = of_ours(ours)
    assert view.bounds == {
        ("Orders", 1): (0, 120),
        ("%LMQ%a", 0): (0, 80),
        ("%LMQ%b", 0): (0, 80),
    }


def test_common_properties_of_a_batch(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    """Properties of the batch itself: in each element until 5.3.3, and in none since, as before 4.8."""
    path = tmp_path / "store"
    parts = [Sent(body=b"%d" % n, properties=(("n", f"{n}"),)) for n in range(5)]
    with oracle.open(path, SMALL) as theirs:
        answer = theirs.put_batch({**oracle_batch(parts), "common": "where\x01here\x02"})
        assert (answer["status"], answer["count"]) == ("PUT_OK", 5)
        theirs.settle()
        view = of_oracle(theirs.dump())
    common = {} if since(version, "5.3.4") else {"where": "here"}
    wanted = [{"n": f"{n}", **common} for n in range(5)]
    assert [m["properties"] for m in view.queues["Orders", 0].values()] == wanted
    for mode in ("r", "rw"):
        with rocketstore.open(path, mode, config=config_of(SMALL)) as ours:
            tally.same(view, of_ours(ours))


#: What put_message refuses, and the first release whose recovery cuts the log there.
UNREADABLE: dict[str, tuple[Sent, str]] = {
    "delay": (
        Sent(topic="SCHEDULE_TOPIC_XXXX", properties=(("DELAY", "abc"),)),
        "4",
    ),
    "long delay": (
        Sent(topic="SCHEDULE_TOPIC_XXXX", properties=(("DELAY", "2147483648"),)),
        "4",
    ),
    "count": (Sent(properties=(("INNER_NUM", "x"), ("INNER_BASE", "0"))), "5"),
    "base": (Sent(properties=(("INNER_NUM", "1"), ("INNER_BASE", "x"))), "5"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_numbers_that_end_a_log(version: str, name: str, tally: Tally, tmp_path: Path) -> None:
    """What we refuse because RocketMQ's recovery would cut its log there, and lose what is behind."""
    sent, first = UNREADABLE[name]
    path = tmp_path / "store"
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        end = Sent(body=b"before").put(ours).end_offset
        with pytest.raises(rocketstore.MessageRejectedError):
            sent.put(ours)
    record = encode_record(
        topic=sent.topic,
        body=b"",
        properties=sent.property_text.encode(),
        queue_offset=1,
        physical_offset=end,
        store_timestamp_ms=BORN_MS,
    )
    with open(path / "commitlog" / f"{0:020d}", "r+b") as log:
        log.seek(end)
        log.write(record)
    (path / "abort").touch()
    tally.scenarios += 1
    with Oracle(version) as alone:
        store = alone.start(path, SMALL)
        kept = end if since(version, first) else end + len(record)
        assert store.dump()["max_offset"] == kept


@pytest.mark.parametrize("name", ["delay", "long delay"])
def test_numbers_that_end_no_log(
    oracle: Oracle, version: str, name: str, tally: Tally, tmp_path: Path
) -> None:
    """RocketMQ 5 stores them without a unit, 4.9.8 does not: here they and what follows are in their
    queues."""
    if version == "4.9.8":
        pytest.skip("4.9.8 throws when it is to store one")
    sent, _ = UNREADABLE[name]
    steps = [Sent(body=b"before"), sent, Sent(body=b"behind"), sent]
    path = tmp_path / "store"
    store = oracle.start(path, SMALL)
    assert all(r["status"] == "PUT_OK" for r in store.put([s.for_oracle() for s in steps]))
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    store.shutdown()
    tally.scenarios += 1
    for root, mode in ((path, "r"), (copy, "r"), (copy, "rw")):
        with rocketstore.open(root, mode, config=config_of(SMALL)) as ours:
            found = [m.body for t in ours.topics(system=True) for m in ours.consumer(t)]
            assert sorted(found) == sorted(s.body for s in steps), (root, mode)
            assert ours.dispatched_offset == ours.end_offset
