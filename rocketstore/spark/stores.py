"""Opens a store for reading, and tells it from another one under the same path; errors have
codes."""

from __future__ import annotations

import json
import os

import rocketstore
from rocketstore import Store
from rocketstore.spark.errors import SparkFaceError, coded_errors, no_store

__all__ = ["open_to_read", "store_uuid"]


def open_to_read(path: str) -> Store:
    """The store for reading; errors with a code."""
    with coded_errors("RS_READ_FAILED", path):
        try:
            return rocketstore.open(path, "r")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise no_store(path, error) from None
        except PermissionError as error:
            raise SparkFaceError("RS_NO_PERMISSION", f"path = {path!r}: {error}") from error


def store_uuid(path: str) -> str:
    """What tells this store from another under the same path; empty where only RocketMQ wrote."""
    name = os.path.join(path, "rocketstore", "store.json")
    with coded_errors("RS_READ_FAILED", path):
        try:
            with open(name, encoding="utf-8") as file:
                return str(json.load(file)["uuid"])
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return ""
