"""A store that is open for writing takes the commits of sinks in other processes, and the offsets of
streams.

    with rocketstore.open("data/orders") as store, rocketstore.spark.serve(store):
        frame.write.format("rocketstore").mode("append").option("path", "data/orders").save()

Without it a sink waits until the store is closed. Needs neither pyspark nor pyarrow.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import RocketStoreError, Store, StoreClosedError
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.commit import commit_to
from rocketstore.spark.sink.group_commit import store_offsets
from rocketstore.spark.sink.handover import AskedOffsets, give_answer, load_asked, take, waiting
from rocketstore.spark.sink.store_access import Step, journal_lock, no_step
from rocketstore.values import runs_here, start_thread, without_frames

__all__ = ["StoreServer", "serve"]

logger = logging.getLogger(__name__)

#: Seconds between two looks at the inbox: processes that share only files cannot wake each other.
LOOK_S = 0.02
#: Seconds between two looks after the system has refused something.
RETRY_S = 0.5


def serve(store: Store) -> StoreServer:
    """Takes commits of sinks in other processes, and offsets of their streams (`consumerGroup`), until
    it is closed; close it before the store.

    Each commit is appended once, whichever process dies meanwhile; this process may put messages, too.
    Where a commit cannot be appended its sink gets an error, and the next one is taken.

    Raises:
        StoreReadOnlyError, StoreClosedError: the store is not open for writing.
        SparkFaceError: RS_JOURNAL_BUSY: it is served already.
        OSError: there is no thread left.
    """
    return StoreServer(store)


class StoreServer:
    """A thread that serves one store; made by `serve`, a context manager."""

    def __init__(self, store: Store, *, on_step: Step = no_step) -> None:
        store.wait_flushed(store.begin_offset)  # says what is wrong with a store that takes no puts
        self._store = store
        self._path = os.path.abspath(rocketstore.scan(store, columns=["size"]).path)
        self._on_step = on_step
        # Set by `close` alone. No event: its lock may stay taken where a signal's handler raises.
        self._ending = False
        # Written by the thread alone.
        self._failure: BaseException | None = None
        self._refused = ""
        self._lock = journal_lock(self._path)
        self._thread = threading.Thread(target=self._run, name="rocketstore-inbox", daemon=True)
        try:
            start_thread(self._thread)
        except BaseException:
            self._lock.release()
            raise

    @property
    def alive(self) -> bool:
        """Whether commits are taken; not after `close`, a failure, or the end of the store."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Ends the commit that is under way and takes no other. Idempotent.

        Raises:
            Exception: whatever ended the thread before.
        """
        self._ending = True
        if not runs_here(self._thread):
            self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> StoreServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while not self._ending and not self._store.closed:
                time.sleep(LOOK_S if self._look() else RETRY_S)
        except StoreClosedError:
            # The asker sees that no process serves any more, and finishes the commit itself.
            logger.info("%s was closed while a commit was appended", self._path)
        except BaseException as error:
            self._failure = without_frames(error)
            logger.error("%s is not served any more: %r", self._path, error)
        finally:
            self._lock.release()

    def _look(self) -> bool:
        """Serves what is there; False when the system refuses something, a full disk for example:
        what was taken stays in the inbox, and is taken again."""
        try:
            for file in waiting(self._path):
                self._serve(file)
                if self._ending:
                    break
        except OSError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                logger.warning("the inbox of %s is tried again: %s", self._path, error)
            return False
        self._refused = ""
        return True

    def _serve(self, file: Path) -> None:
        taken = take(file)
        if taken is None:
            return  # it was withdrawn
        self._on_step("taken")
        give_answer(taken, self._commit(taken))
        self._on_step("answered")
        with contextlib.suppress(FileNotFoundError):
            taken.unlink()

    def _commit(self, taken: Path) -> dict[str, Any]:
        def progress(step: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                os.utime(taken)
            self._on_step(step)

        try:
            asked = load_asked(taken)
            if isinstance(asked, AskedOffsets):
                store_offsets(self._store, asked.group, asked.offsets)
                return {"appended": False}
            done = commit_to(
                self._store,
                self._path,
                asked.writer,
                asked.version,
                asked.files,
                progress,
                mixed=True,
                reuse=asked.reuse,
            )
        except StoreClosedError:
            raise
        except SparkFaceError as error:
            return {"code": error.code, "text": error.text}
        except (RocketStoreError, OSError) as error:
            if self._store.closed:
                raise StoreClosedError(f"{self._path} was closed") from error
            logger.warning("%s: a commit could not be appended: %r", self._path, error)
            return {"code": "RS_OWNER_FAILED", "text": f"{type(error).__name__}: {error}"}
        return {"appended": done}
