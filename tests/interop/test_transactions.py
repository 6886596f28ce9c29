"""Half messages of both: what one has prepared, the other one settles, and both serve the same.

RocketMQ's store has no transactions itself: its broker hands it half messages, op messages and committed copies as
ordinary messages. They are put here through its store in the form that the broker gives them (format.md 11.1 to
11.3), as `TransactionalMessageBridge` and `EndTransactionProcessor` of each release make it.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, OracleStore, since
from tests.interop.views import Tally, of_oracle, of_ours

pytestmark = pytest.mark.java

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COUNT = 40
COMMITTED = 8


def half_of(n: int, version: str) -> Sent:
    """Of message `n`, as a broker stores it."""
    unique = f"U{n:04}"
    own = [("KEYS", f"k{n}"), ("TAGS", f"t{n % 5}"), ("TRAN_MSG", "true"), ("PGROUP", "billing")]
    own += [("UNIQ_KEY", unique), ("REAL_TOPIC", "Orders"), ("REAL_QID", f"{n % 4}")]
    if since(version, "5.1.0"):
        own.append(("__transactionId__", unique))
    return Sent(topic=HALF, body=b"%d" % n, properties=tuple(own), flag=n)


def copy_of(half: Sent, queue_id: int, physical_offset: int) -> Sent:
    """What a commit puts; the texts of the properties are those of the half message."""
    return Sent(
        topic="Orders",
        queue_id=queue_id,
        body=half.body,
        properties=half.properties,
        flag=half.flag,
        sys_flag=COMMITTED,
        prepared_transaction_offset=physical_offset,
    )


def op_of(queue_offsets: list[int], version: str) -> list[Sent]:
    """One op message for each until 5.0, one for several since."""
    tags = (("TAGS", "d"),)
    if since(version, "5.1.0"):
        text = "".join(f"{at}," for at in queue_offsets)
        return [Sent(topic=OP, body=text.encode(), properties=tags)]
    return [Sent(topic=OP, body=b"%d" % at, properties=tags) for at in queue_offsets]


def put(store: OracleStore, messages: list[Sent]) -> list[int]:
    """The physical offsets of messages that RocketMQ's store has put."""
    results = store.put([message.for_oracle() for message in messages])
    assert {result["status"] for result in results} <= {"PUT_OK"}
    return [int(result["physical_offset"]) for result in results]


def delivered(store: OracleStore) -> list[int]:
    """Of Orders, what consumers of RocketMQ are given."""
    return sorted(
        int(base64.b64decode(message["body"]))
        for queue in store.dump()["queues"]
        if queue["topic"] == "Orders"
        for message in queue["messages"]
    )


def test_we_settle_what_they_prepared(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    """A fourth each: settled by them; committed by them without the op message (K-66); ours to
    commit; ours to roll back."""
    path = tmp_path / "store"
    halves = [half_of(n, version) for n in range(COUNT)]
    with oracle.open(path, SMALL) as theirs:
        at = put(theirs, halves)
        done, half_done = range(0, COUNT, 4), range(1, COUNT, 4)
        put(theirs, [copy_of(halves[n], n % 4, at[n]) for n in (*done, *half_done)])
        put(theirs, op_of([*done], version))
        theirs.settle()
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        listed = ours.transactions.open()
        assert [one.id for one in listed] == [at[n] for n in range(COUNT) if n % 4 > 1]
        assert {(one.topic, one.group) for one in listed} == {("Orders", "billing")}
        for one in listed:
            n = at.index(one.id)
            assert (one.queue_id, one.unique_id) == (n % 4, f"U{n:04}")
            if n % 4 == 2:
                copy = ours.get(ours.transactions.commit(one.id))
                half = ours.get(one.id)
                assert (copy.topic, copy.queue_id) == ("Orders", n % 4)
                assert (copy.sys_flag, copy.prepared_transaction_offset) == (COMMITTED, one.id)
                assert (copy.body, copy.flag, copy.properties) == (
                    *(half.body, half.flag, half.properties),
                )
                assert (copy.born_host, copy.born_timestamp_ms) == (
                    *(half.born_host, half.born_timestamp_ms),
                )
            else:
                ours.transactions.rollback(one.id)
        assert ours.transactions.open() == []
        ours.flush()
        view = of_ours(ours)
        ops = [bytes(message.body) for message in ours.consumer(OP)]
    # Each half message is named once, in a form that RocketMQ splits.
    named = sorted(int(word) for op in ops for word in op.decode().split(",") if word)
    assert named == list(range(COUNT))
    with oracle.open(path, SMALL) as theirs:
        assert delivered(theirs) == [n for n in range(COUNT) if n % 4 < 3]
        tally.same(of_oracle(theirs.dump()), view)


def test_they_settle_what_we_prepared(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    """By the half messages that RocketMQ's store serves; and nothing of it is settled twice by us."""
    path = tmp_path / "store"
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        prepared = [
            ours.transactions.prepare(
                *("Orders", b"%d" % n), group="billing", queue_id=n % 4, keys=f"k{n}", flag=n
            )
            for n in range(COUNT)
        ]
        ours.flush()
        view = of_ours(ours)
    with oracle.open(path, SMALL) as theirs:
        dump = theirs.dump()
        tally.same(of_oracle(dump), view)
        found: list[dict[str, Any]] = [
            message
            for queue in dump["queues"]
            if queue["topic"] == HALF
            for message in queue["messages"]
        ]
        assert [message["physical_offset"] for message in found] == [one.id for one in prepared]
        copies = []
        for n, message in enumerate(found):
            told = of_oracle(dump).queues[HALF, 0][n]["properties"]
            assert (told["REAL_TOPIC"], told["REAL_QID"]) == ("Orders", f"{n % 4}")
            assert (told["PGROUP"], told["TRAN_MSG"]) == ("billing", "true")
            half = Sent(
                topic=HALF,
                body=base64.b64decode(message["body"]),
                properties=tuple(told.items()),
                flag=message["flag"],
            )
            if n % 3 == 0:
                copies.append(copy_of(half, n % 4, message["physical_offset"]))
        put(theirs, copies)
        put(theirs, op_of([n for n in range(COUNT) if n % 3 < 2], version))
        theirs.settle()
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        assert [one.id for one in ours.transactions.open()] == [
            one.id for n, one in enumerate(prepared) if n % 3 == 2
        ]
        for n, one in enumerate(prepared):
            if n % 3 == 1:
                with pytest.raises(rocketstore.TransactionSettledError, match="rolled back"):
                    ours.transactions.commit(one.id)
            else:
                ours.transactions.commit(one.id)
        ours.flush()
        view = of_ours(ours)
    with oracle.open(path, SMALL) as theirs:
        assert delivered(theirs) == [n for n in range(COUNT) if n % 3 != 1]
        tally.same(of_oracle(theirs.dump()), view)
