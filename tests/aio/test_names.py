"""Both faces have the same names: what one of them lacks stands here, and why."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import rocketstore
import rocketstore.aio
from rocketstore.aio import services
from rocketstore.puts.put_message import MessageFields
from rocketstore.services.delay.pending import Delayed
from rocketstore.services.retention.service import StoreRetention
from rocketstore.services.transactions.transactions import Transactions
from tests.aio.loops import open_small

#: Only in threads.
OF_THREADS = {
    rocketstore.Store: {},
    rocketstore.Writer: {},
    rocketstore.Consumer: {},
    rocketstore.StoreTransaction: {},
    Delayed: {},
    StoreRetention: {},
    Transactions: {},
}
#: Only in a loop.
OF_LOOPS = {
    rocketstore.aio.Store: {
        "blocking": "the store in threads",
        "in_flight": "a thread waits for its own put, a loop for many",
        "in_flight_bytes": "the same in bytes",
    },
    rocketstore.aio.Writer: {},
    rocketstore.aio.Consumer: {},
    rocketstore.aio.StoreTransaction: {},
    services.Delayed: {"blocking": "the service in threads"},
    services.StoreRetention: {"blocking": "the service in threads"},
    services.Transactions: {"blocking": "the service in threads"},
}
#: Properties that read files, or wait for a lock: a loop calls and awaits them.
CALLED = {"next_due_time", "undelivered", "holds", "error", "errors", "check_error"}
#: Arguments that only threads have.
ARGUMENTS = {"timeout_s": "asyncio.timeout(…) around a put"}
#: The same of `submit`, which appends in the loop, while these look at the queue and the index.
OF_SUBMIT = {"expected_queue_offset": "await `put`", "unique_id": "await `put`"}
#: Methods of a store of which a loop hands on what it does not look at, and the type of that.
HANDED_ON = {"put_message": MessageFields}

FACES = list(zip(OF_THREADS, OF_LOOPS, strict=True))


def names(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize(("threads", "loops"), FACES)
def test_the_names_are_those_of_threads(threads: type, loops: type) -> None:
    assert names(threads) - names(loops) == set(OF_THREADS[threads])
    assert names(loops) - names(threads) == set(OF_LOOPS[loops])


@pytest.mark.parametrize(("threads", "loops"), FACES)
def test_so_are_their_arguments(threads: type, loops: type) -> None:
    handed_on = set(HANDED_ON) if threads is rocketstore.Store else set()
    for name in sorted((names(threads) & names(loops)) - handed_on):
        one, other = getattr(threads, name), getattr(loops, name)
        known_kinds = {"topic", "durability", *CALLED}  # native ones are no `property`
        assert isinstance(one, property) == isinstance(other, property) or name in known_kinds, name
        if callable(one):
            blocking, awaited = (list(inspect.signature(f).parameters) for f in (one, other))
            left_out = [argument for argument in blocking if argument not in awaited]
            assert awaited == [argument for argument in blocking if argument not in left_out], name
            known = ARGUMENTS if name.startswith("put") else OF_SUBMIT if name == "submit" else {}
            assert set(left_out) <= set(known), name


@pytest.mark.parametrize("name", HANDED_ON)
def test_what_is_handed_on_is_typed_alike(name: str) -> None:
    threads, loops = (
        inspect.signature(getattr(of, name)).parameters
        for of in (rocketstore.Store, rocketstore.aio.Store)
    )
    handed_on = {n: p.annotation for n, p in threads.items() if n not in {*loops, *ARGUMENTS}}
    fields = {n: t.__forward_arg__ for n, t in HANDED_ON[name].__annotations__.items()}
    assert fields == handed_on


def test_open_has_the_same_arguments() -> None:
    threads = inspect.signature(rocketstore.open).parameters
    loops = inspect.signature(rocketstore.aio.open).parameters
    own = {"max_in_flight", "max_in_flight_bytes"}
    assert [n for n in loops if n not in own] == list(threads)
    assert own < set(loops)


async def test_a_store_that_is_not_open_yet_says_so(tmp_path: Path) -> None:
    opening = open_small(tmp_path)
    with pytest.raises(AttributeError, match=r"not open yet and has no 'writer': say `async with"):
        opening.writer("t")  # type: ignore[attr-defined]
    assert not hasattr(opening, "closed")
    async with opening as store:
        await store.writer("t").put(b"x")
