"""The store against its model: random puts, batches, rolls, reads, crashes, reopens and trims on tiny files.

A crash is a copy of the directory while the store is open: what the files show then is what the kernel
holds after the death of the process. ROCKETSTORE_MACHINE_EXAMPLES asks for so many sequences of 50 steps.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import rocketstore
from tests.model.model import Model, Sent
from tests.support import campaign
from tests.support.copies import copy_if_there

TOPICS = ("a", "orders", "%RETRY%g")
TAGS = ("Aa", "BB", "c")  # Aa and BB have one hash
KEYS = ("k", "Aa", "BB", "o-17")

# Which of those there are: what a crash leaves depends on timing, what is drawn must not.
picks = st.integers(0, 1000)
bodies = st.binary(max_size=150)
tags = st.none() | st.sampled_from(TAGS)
keys = st.lists(st.sampled_from(KEYS), max_size=3, unique=True).map(tuple)
properties = st.dictionaries(st.sampled_from(("x", "yy")), st.sampled_from(("1", "vv")), max_size=2)


class StoreMachine(RuleBasedStateMachine):
    """One store and its model, through crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="rocketstore-machine-"))
        self.root = self.base / "0"
        self.copies = 0
        self.model = Model()
        self.store: rocketstore.Store | None = None
        self.options: dict[str, Any] = {}

    @initialize(
        size=st.sampled_from((512, 1024, 4096)),
        durability=st.sampled_from(("os", "os", "disk", "memory")),
        record_crc=st.booleans(),
    )
    def begin(self, size: int, durability: str, record_crc: bool) -> None:
        self.options = {
            "commit_log_file_size_bytes": size,
            "consume_queue_file_size_bytes": 100,
            "index_slots": 7,
            "index_entries": 12,
            "durability": durability,
            "record_crc": record_crc,
            "write_buffer_bytes": 65536,
        }
        self.store = rocketstore.open(self.root, **self.options)

    @property
    def opened(self) -> rocketstore.Store:
        assert self.store is not None
        return self.store

    def note(
        self, result: Any, topic: str, queue_id: int, parts: list[bytes], **fields: Any
    ) -> None:
        places = [*result.physical_offsets, result.end_offset]
        for i, body in enumerate(parts):
            self.model.add(
                Sent(
                    topic,
                    queue_id,
                    result.queue_offset + i,
                    places[i],
                    places[i + 1],
                    body,
                    fields.get("tags"),
                    fields.get("keys", ()),
                    tuple(sorted(fields.get("properties", {}).items())),
                    result.store_timestamp_ms,
                )
            )
        if result.durability != "memory":
            self.model.promise(result.end_offset)

    @rule(
        topic=st.sampled_from(TOPICS),
        queue_id=st.integers(0, 1),
        body=bodies,
        tags=tags,
        keys=keys,
        properties=properties,
    )
    def put(self, topic: str, queue_id: int, body: bytes, **fields: Any) -> None:
        writer = self.opened.writer(topic, queue_id=queue_id)
        self.note(writer.put(body, **fields), topic, queue_id, [body], **fields)

    @rule(
        topic=st.sampled_from(TOPICS),
        parts=st.lists(st.binary(max_size=20), min_size=1, max_size=3),
    )
    def put_batch(self, topic: str, parts: list[bytes]) -> None:
        result = self.opened.writer(topic).put_batch(parts)
        self.note(result, topic, 0, parts)

    @rule(topic=st.sampled_from(TOPICS), rows=st.lists(bodies, min_size=1, max_size=8))
    def put_columns(self, topic: str, rows: list[bytes]) -> None:
        offsets = [0]
        for row in rows:
            offsets.append(offsets[-1] + len(row))
        result = self.opened.writer(topic).put_columns((offsets, b"".join(rows)))
        places = result.physical_offsets
        for i, row in enumerate(rows):
            size = self.opened.get(places[i]).size if self.visible(places[i]) else len(row)
            self.model.add(
                Sent(
                    topic,
                    0,
                    result.queue_offset + i,
                    places[i],
                    places[i] + size,
                    row,
                    None,
                    (),
                    (),
                    None,
                )  # one time for each segment
            )
        if result.durability != "memory":
            self.model.promise(result.end_offset)

    def visible(self, offset: int) -> bool:
        self.opened.wait_flushed(self.opened.end_offset)
        return offset < self.opened.visible_offset

    @rule(topic=st.sampled_from(TOPICS))
    def too_large(self, topic: str) -> None:
        before = self.opened.end_offset
        with pytest.raises(rocketstore.MessageRejectedError):
            self.opened.writer(topic).put(b"x" * self.options["commit_log_file_size_bytes"])
        assert self.opened.end_offset == before

    @rule(topic=st.sampled_from(TOPICS), more=st.sampled_from((-1, 0, 1)))
    def put_to_the_end(self, topic: str, more: int) -> None:
        """A record that ends where the blank header begins, one byte before, or one byte too far."""
        size = self.options["commit_log_file_size_bytes"]
        end = self.opened.end_offset
        left = size - end % size
        fixed = 91 + len(topic) + (20 if self.options["record_crc"] else 0)
        body = left - 8 - fixed + more
        if body < 0 or body + fixed > size - 8:
            return
        result = self.opened.writer(topic).put(b"e" * body)
        self.note(result, topic, 0, [b"e" * body])
        assert result.size == body + fixed
        assert result.physical_offset == (end if more <= 0 else end + left)

    @rule()
    def flush(self) -> None:
        end = self.opened.end_offset
        self.opened.wait_flushed(end)
        assert self.opened.flushed_offset >= end
        self.model.promise(end)

    def same(self, got: rocketstore.Message, sent: Sent) -> None:
        assert got.body == sent.body
        assert (got.topic, got.queue_id, got.queue_offset) == (
            sent.topic, sent.queue_id, sent.queue_offset,
        )  # fmt: skip
        assert got.physical_offset == sent.physical_offset
        assert got.tags == sent.tags
        assert tuple(got.keys) == sent.keys
        own = {k: v for k, v in got.properties.items() if k in ("x", "yy")}
        assert tuple(sorted(own.items())) == sent.properties
        if sent.store_timestamp_ms is not None:
            assert got.store_timestamp_ms == sent.store_timestamp_ms

    @rule(pick=picks)
    def read_queue(self, pick: int) -> None:
        if not self.model.messages:
            return
        queues = self.model.queues()
        topic, queue_id = queues[pick % len(queues)]
        self.opened.wait_flushed(self.opened.end_offset)
        self.model.promise(self.opened.end_offset)
        expected = self.model.queue(topic, queue_id)
        got = list(self.opened.consumer(topic, queue_id=queue_id))
        assert len(got) == len(expected)
        for message, sent in zip(got, expected, strict=True):
            self.same(message, sent)

    @rule(pick=picks, count=st.integers(1, 5))
    def poll_from(self, pick: int, count: int) -> None:
        if not self.model.messages:
            return
        queues = self.model.queues()
        topic, queue_id = queues[pick % len(queues)]
        self.opened.wait_flushed(self.opened.end_offset)
        self.model.promise(self.opened.end_offset)
        expected = self.model.queue(topic, queue_id)
        if not expected:
            return
        index = pick % len(expected)
        offset = expected[index].queue_offset
        with self.opened.consumer(topic, queue_id=queue_id, offset=offset) as consumer:
            got = consumer.poll(max_messages=count)
        assert 1 <= len(got) <= count
        for message, sent in zip(got, expected[index:], strict=False):
            self.same(message, sent)

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(KEYS))
    def query(self, topic: str, key: str) -> None:
        self.opened.wait_flushed(self.opened.end_offset)
        self.model.promise(self.opened.end_offset)
        expected = self.model.with_key(topic, key)[-64:]
        got = self.opened.query(topic, key, limit=64)
        assert sorted(m.physical_offset for m in got) == [m.physical_offset for m in expected]

    @rule(pick=picks)
    def trim(self, pick: int) -> None:
        if not self.model.messages:
            return
        message = self.model.messages[pick % len(self.model.messages)]
        begin = self.opened.trim(before_offset=message.physical_offset)
        assert begin <= max(message.physical_offset, self.model.begin_offset)
        assert begin >= self.model.begin_offset
        self.model.begin_offset = begin

    @rule()
    def reopen(self) -> None:
        end = self.opened.end_offset
        self.opened.close()
        self.store = rocketstore.open(self.root, **self.options)
        assert self.opened.end_offset == end
        self.model.promise(end)

    def take_copy(self) -> Path:
        """What the kernel holds if the process dies now. Second names of segments come and go."""
        self.copies += 1
        copy = self.base / str(self.copies)
        shutil.copytree(self.root, copy, copy_function=copy_if_there)
        return copy

    def die(self, copy: Path) -> None:
        self.opened.close()
        shutil.rmtree(self.root)
        self.root = copy
        self.store = rocketstore.open(self.root, **self.options)
        self.model.cut(self.opened.end_offset)
        for topic, queue_id in self.model.queues():
            expected = self.model.queue(topic, queue_id)
            last = expected[-1].queue_offset + 1 if expected else None
            end = self.opened.max_queue_offset(topic, queue_id)
            assert last is None or end == last, "nothing that was given up comes back"

    @rule()
    def crash(self) -> None:
        self.die(self.take_copy())

    @precondition(lambda self: self.options["record_crc"])
    @rule(beyond=st.integers(0, 300))
    def crash_with_a_torn_tail(self, beyond: int) -> None:
        """As a power cut: bytes that were not flushed never reached the disk. The log is cut there, on
        disk, so that what stood behind it never comes back."""
        for part in (b"one", b"two", b"three"):
            self.put("a", 0, part)
        copy = self.take_copy()
        flushed = self.opened.flushed_offset
        torn = flushed + beyond
        self.model.acked_offset = min(self.model.acked_offset, flushed)
        size = self.options["commit_log_file_size_bytes"]
        segment = copy / "commitlog" / f"{torn - torn % size:020d}"
        if segment.exists():
            data = bytearray(segment.read_bytes())
            at = torn % size
            lost_bytes = data[at : at + 16]
            data[at : at + 16] = bytes(len(lost_bytes))
            segment.write_bytes(data)
            torn += next((n for n, byte in enumerate(lost_bytes) if byte), 1 << 40)
        before = list(self.model.messages)
        self.die(copy)
        if any(m.physical_offset <= torn < m.end_offset for m in before):
            assert self.opened.end_offset <= torn
        lost = before[len(self.model.messages) :]
        if lost:
            # The same message again ends exactly where the old ones behind it begin.
            again = lost[0]
            fields = {
                "tags": again.tags,
                "keys": again.keys,
                "properties": dict(again.properties),
            }
            self.put(again.topic, again.queue_id, again.body, **fields)
            self.flush()
            self.crash()

    @invariant()
    def positions_are_in_order(self) -> None:
        if self.store is None:
            return
        store = self.store
        begin, dispatched = store.begin_offset, store.dispatched_offset
        visible, end = store.visible_offset, store.end_offset
        assert begin <= dispatched <= visible <= end or dispatched <= begin

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()
        shutil.rmtree(self.base, ignore_errors=True)


SHRINK = os.environ.get("ROCKETSTORE_MACHINE_SHRINK", "1") != "0"
#: Sequences that are asked for; "": the time of a whole run, or as many as `make test` does.
EXAMPLES = os.environ.get("ROCKETSTORE_MACHINE_EXAMPLES", "")
STEPS = 50
#: Sequences of one seed. Hypothesis cannot be told a time: seeds follow each other until it is used.
EXAMPLES_A_SEED = 20
#: Sequences of `make test`; `make model` and the whole run do 400, or what there is time for.
IN_SHORT = 6


def test_the_store_is_as_its_model(rng: random.Random) -> None:
    """D-06 D-20 D-29: nothing is lost, made up or out of order, whatever is done to a store."""
    running = campaign.begin(
        "steps of the model",
        asked=str(int(EXAMPLES) * STEPS) if EXAMPLES else "",
        alone=IN_SHORT * STEPS,
    )
    while running.goes_on():
        left = (
            -(-(running.count - running.did) // STEPS)
            if running.seconds is None
            else EXAMPLES_A_SEED
        )
        examples = min(left, EXAMPLES_A_SEED)
        seed(rng.getrandbits(63))(StoreMachine)
        run_state_machine_as_test(
            StoreMachine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                # Shrinking a failure takes minutes; a planted fault only has to be noticed.
                phases=(
                    Phase.explicit,
                    Phase.reuse,
                    Phase.generate,
                    *((Phase.shrink,) if SHRINK else ()),
                ),
                print_blob=True,
            ),
        )
        running.did += examples * STEPS
    running.end()
