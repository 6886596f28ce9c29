"""rocketstore for asyncio: the same store, and nothing that blocks runs on the loop.

    import rocketstore.aio

    async with rocketstore.aio.open("data/orders") as store:
        await store.writer("orders").put(b"hello", keys="o-17")
        async for message in store.consumer("orders"):
            print(message.queue_offset, message.body)

A put is a copy into memory, done at once on the loop. What it waits for is the disk, without a
thread: one flush serves all tasks that wait, and wakes the loop once. Calls that read or write
files otherwise run on a few threads of the store's own.

Modules, in reading order:
    open_store: `open` and `attach`; an `Opening` is what `async with` and `await` take.
    store: `Store`, with the names of `rocketstore.Store`.
    writer: `Writer`: puts of the tasks of one loop.
    put_line: `Line`: puts that wait, in their order.
    awaited: `PutFuture`, what a put gives: a future that is a coroutine too; `Query`, what a look-up
        by key gives: a coroutine and an async iterable.
    fairness: how long all tasks together put in one turn of the loop.
    loop_port: one loop and one store: completions, threads, and the bounds on what is in flight.
    host_promises: what waits for the disk of a store that another process has.
    consumer: `Consumer` and `Following`: a thread fetches, the loop hands out.
    store_transaction: `StoreTransaction`: messages and offsets together, from threads.
    services: `Delayed`, `StoreRetention`, `Transactions`: services of a store, from threads.

A face: it uses exported names of the library, and nothing imports it.
"""

from rocketstore.aio.awaited import PutFuture
from rocketstore.aio.consumer import Consumer, Following
from rocketstore.aio.loop_port import IN_FLIGHT_BYTES, IN_FLIGHT_MESSAGES
from rocketstore.aio.open_store import Opening, attach
from rocketstore.aio.open_store import open_store as open  # shadows the builtin on purpose
from rocketstore.aio.store import Store
from rocketstore.aio.store_transaction import StoreTransaction
from rocketstore.aio.writer import Writer

__all__ = [
    "IN_FLIGHT_BYTES",
    "IN_FLIGHT_MESSAGES",
    "Consumer",
    "Following",
    "Opening",
    "PutFuture",
    "Store",
    "StoreTransaction",
    "Writer",
    "attach",
    "open",
]


def __dir__() -> list[str]:
    """What completion shows: no modules."""
    return sorted(__all__)
