"""What the process that has a store open does for the sinks of other processes: it appends their commits, and stores
the offsets of their streams.

    with rocketstore.open("data/orders") as store, rocketstore.spark.serve(store):
        frame.write.format("rocketstore").mode("append").option("path", "data/orders").save()

A store that is open with `shared=` does so without `serve`. Needs neither pyspark nor pyarrow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from rocketstore import RocketStoreError, Store, StoreClosedError
from rocketstore.sharing import serve_guests
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.commit import commit_to
from rocketstore.spark.sink.group_commit import store_offsets
from rocketstore.spark.sink.journal import coded_damage, staged_files, whole_number
from rocketstore.spark.sink.store_access import journal_lock
from rocketstore.values import LIMITS, parse_json

__all__ = ["StoreServer", "answer_commit", "answer_offsets", "serve"]

#: Longest wait for the commits of others that a sink may ask for, seconds: the option `lockTimeoutS`.
LOCK_TIMEOUT_MAX_S: Final = 86_400
#: What an error names that is in the call itself.
CALL: Final = "a call of a sink"


def serve(store: Store) -> StoreServer:
    """Makes the store the host of other processes, as `shared="host"` does, until the store is closed: sinks hand their
    commits in, and streams their offsets (`consumerGroup`). A store that has a host already stays as it is.

    Each commit is appended once, whichever process dies meanwhile; this process may put messages, too.
    Where a commit cannot be appended its sink gets an error, and the next one is taken.

    Raises:
        StoreReadOnlyError, StoreClosedError: the store is not open for writing.
        OSError: there is no thread left, or no socket can be made.
    """
    return StoreServer(store)


class StoreServer:
    """A store that takes commits; made by `serve`, a context manager."""

    def __init__(self, store: Store) -> None:
        self._store = store
        serve_guests(store)

    @property
    def alive(self) -> bool:
        """Whether commits are taken: until the store is closed."""
        return not self._store.closed

    def close(self) -> None:
        """Does nothing, so that a block may end: the store stays a host until it is closed itself, which waits for
        what goes on."""

    def __enter__(self) -> StoreServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- calls of sinks ----


def answer_commit(store: Store, asked: bytes) -> dict[str, Any]:
    """Appends what the call `sink_commit` names; whether that was done, or had been before."""

    def act(found: Any) -> bool:
        with coded_damage(CALL):
            writer, version = str(found["writer"]), whole_number(found["version"])
            files, reuse = staged_files(found["files"]), str(found["reuse"])
            wait_s = min(whole_number(found["wait_ms"]) / 1000, LOCK_TIMEOUT_MAX_S)
        with journal_lock(store.path, wait_s, lambda: store.closed):
            return commit_to(store, store.path, writer, version, files, mixed=True, reuse=reuse)

    return _answer(store, asked, act)


def answer_offsets(store: Store, asked: bytes) -> dict[str, Any]:
    """Stores what the call `sink_offsets` names."""

    def act(found: Any) -> bool:
        with coded_damage(CALL):
            offsets = {
                str(topic): {
                    int(queue_id): whole_number(offset) for queue_id, offset in row.items()
                }
                for topic, row in found["offsets"].items()
            }
            group = str(found["group"])
        store_offsets(store, group, offsets)
        return False

    return _answer(store, asked, act)


def _answer(store: Store, asked: bytes, act: Callable[[Any], bool]) -> dict[str, Any]:
    """The outcome as the sink reads it: `appended`, or code and text of an error. StoreClosedError: the store was
    closed meanwhile; the sink asks the next process that has it."""
    try:
        with coded_damage(CALL):
            found = parse_json(asked, LIMITS["spark"])
        return {"appended": act(found)}
    except SparkFaceError as error:
        code, text = error.code, error.text
    except (RocketStoreError, OSError, MemoryError) as error:
        if store.closed:
            raise StoreClosedError(f"{store.path} was closed") from error
        code, text = "RS_OWNER_FAILED", f"{type(error).__name__}: {error}"
    return {"code": code, "text": text, "pid": os.getpid()}
