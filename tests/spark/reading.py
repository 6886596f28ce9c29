"""A store to read with Spark, and what its rows should be."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import rocketstore

FIRST_MS = 1_700_000_000_000


def make_store(root: Path, rng: random.Random, count: int = 600) -> list[rocketstore.Message]:
    """Three topics, four queues, several segments; the messages in the order of the log."""
    with rocketstore.open(
        root, durability="os", commit_log_file_size_bytes=64 * 1024, index_enabled=False
    ) as store:
        writers = {
            (topic, queue): store.writer(topic, queue_id=queue)
            for topic in ("orders", "events", "ünused")
            if topic.isascii()
            for queue in range(4)
        }
        results = []
        for number in range(count):
            writer = writers[rng.choice(["orders", "events"]), rng.randrange(4)]
            results.append(
                writer.put(
                    rng.randbytes(rng.randrange(600)),
                    tags=rng.choice([None, "red", "blue", "grün"]),
                    keys=rng.choice([None, f"k{number}", ("a", f"b{number}")]),
                    properties={"n": str(number)} if number % 2 else None,
                )
            )
        return [store.get(result.physical_offset) for result in results]


def rows_of(messages: list[rocketstore.Message]) -> list[tuple[Any, ...]]:
    return [
        (
            m.topic,
            m.queue_id,
            m.queue_offset,
            m.physical_offset,
            m.body,
            " ".join(m.keys) or None,
            m.tags,
            m.store_timestamp_ms,
            m.message_id,
        )
        for m in messages
    ]


def rows_in(batches: list[Any]) -> list[tuple[Any, ...]]:
    """The same out of record batches of the default view."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [
        (
            row["topic"],
            row["queue_id"],
            row["queue_offset"],
            row["physical_offset"],
            row["body"],
            row["keys"],
            row["tags"],
            round(row["store_timestamp"].timestamp() * 1000),
            row["msg_id"],
        )
        for row in rows
    ]


def everything(root: Path) -> list[rocketstore.Message]:
    """All messages that consumers are given, in the order of the log."""
    with rocketstore.open(root, "r") as store:
        found = [
            m
            for topic in store.topics(system=True)
            for q in store.queues(topic)
            for m in store.consumer(topic, queue_id=q)
        ]
    return sorted(found, key=lambda m: m.physical_offset)


def crossed(frame: Any) -> tuple[list[Any], int]:
    """Rows of a frame, and how many its scan gave to Spark."""
    plan = frame._jdf.queryExecution().executedPlan()
    rows = frame.collect()
    leaf = plan.collectLeaves().apply(0)
    return rows, int(leaf.metrics().apply("numOutputRows").value())
