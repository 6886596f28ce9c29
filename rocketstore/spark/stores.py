"""Opens a store for reading, and distinguishes it from another one under the same path; errors
have codes."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Final

import rocketstore
from rocketstore import MissingSegmentsError, Store, StoreRecoveringError
from rocketstore.errors import HINTS as LIBRARY_HINTS
from rocketstore.spark.errors import HINTS, SparkFaceError, coded_errors, no_store
from rocketstore.values import LIMITS, parse_json

__all__ = ["open_to_read", "store_uuid"]


#: Longest wait for a process that recovers or rebuilds a store, beyond that of each open, and its
#: step, seconds.
RECOVERING_S: Final = 60.0
RECOVERING_STEP_S: Final = 0.25


def open_to_read(path: str, *, lossy: bool = False) -> Store:
    """The store for reading, once it is recovered; errors with a code. `lossy`: also where files of
    its log are missing.

    Raises:
        SparkFaceError: RS_DATA_LOST: files of the log are missing; RS_STORE_RECOVERING: a process
            has not recovered or rebuilt it in time; RS_NO_STORE, RS_NO_PERMISSION, RS_READ_FAILED.
    """
    deadline = time.monotonic() + RECOVERING_S
    with coded_errors("RS_READ_FAILED", path):
        while True:
            try:
                return _open(path, lossy)
            except StoreRecoveringError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RECOVERING_STEP_S)


def _open(path: str, lossy: bool) -> Store:
    with coded_errors("RS_READ_FAILED", path, StoreRecoveringError):
        try:
            store = rocketstore.open(path, "r", force=lossy)
            if store.recovery.missing and not lossy:  # in between: the open of a reader goes on
                store.close()
                raise MissingSegmentsError(f"{path}: {'; '.join(store.recovery.missing)}; ")
            return store
        except (FileNotFoundError, NotADirectoryError) as error:
            raise no_store(path, error) from None
        except MissingSegmentsError as error:
            what = str(error).removesuffix(LIBRARY_HINTS["force_reader"])
            text = f"{what}mount or restore them{HINTS['data_loss']} ({socket.gethostname()})"
            raise SparkFaceError("RS_DATA_LOST", text) from error
        except PermissionError as error:
            raise SparkFaceError("RS_NO_PERMISSION", f"path = {path!r}: {error}") from error


def store_uuid(path: str) -> str:
    """What distinguishes this store from others under its path; empty: only RocketMQ wrote."""
    name = os.path.join(path, "rocketstore", "store.json")
    with coded_errors("RS_READ_FAILED", path):
        try:
            with open(
                name, "rb", opener=lambda path, how: os.open(path, how | os.O_NONBLOCK)
            ) as file:
                limits = LIMITS["store.json"]
                found: Any = parse_json(file.read(limits.size + 1), limits)
                return str(found["uuid"])
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return ""
