"""Puts that go different ways keep their order; what `aio` takes is what the blocking store takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

import rocketstore
import rocketstore.aio
from tests.aio.loops import open_small, run

BIG = {"commit_log_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 20_000}


@pytest.mark.parametrize("first", ["a new writer", "a full port"])
def test_puts_of_one_task_keep_their_order(tmp_path: Path, first: str) -> None:
    """Whatever way each of them takes."""
    options = {"max_in_flight": 1} if first == "a full port" else {}

    async def main() -> None:
        async with rocketstore.aio.open(tmp_path, **BIG, **options) as store:
            writer = store.writer("orders")
            if options:
                await writer.put(b"0")
            waiting = [writer.put(b"0"), writer.put(b"1")]
            waiting.append(await writer.submit(b"2"))
            waiting.append(writer.put(b"3"))
            await writer.put_batch([b"4", b"5"])
            waiting.append(writer.put(b"6"))
            gone = writer.put(b"gone")
            await store.put_message("orders", b"7")
            gone.cancel()
            await asyncio.gather(*waiting)
            async with store.consumer("orders") as consumer:
                found = [
                    m.body for m in await consumer.poll(100, timeout_s=20) if m.body != b"gone"
                ]
        assert found[bool(options) :] == [b"%d" % n for n in range(8)]

    run(main)


def test_wait_false_asks_for_the_copy_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_small(tmp_path) as store:
            result = await store.put_message("orders", b"x", properties={"WAIT": "false"})
            assert result.durability == "memory"

    run(main)


def test_bodies_of_subclasses_of_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_small(tmp_path) as store:
            result = await store.writer("orders").put(np.bytes_(b"abc"))
            assert (await store.get(result.physical_offset)).body == b"abc"

    run(main)
