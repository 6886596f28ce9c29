"""Options of the data source, by direction: names, meanings, checks. Spark lowers all names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from rocketstore.archive import is_uri, shown_uri
from rocketstore.spark.errors import bad_option
from rocketstore.spark.option_checks import (
    check_names,
    choice,
    number,
    size,
    switch,
    without_kafkas,
)
from rocketstore.spark.stores import directory_of, store_path

__all__ = ["WriteOptions"]

WRITE_NAMES = {
    "path": "directory of the store; made when it is not there",
    "createStore": "true (default), or false: a path without a store is an error",
    "topic": "of all messages, whatever their rows say",
    "queueId": "where rows without a queue_id go; default 0",
    "queues": "rows without a queue_id go to queues 0 … n - 1: those of one key to one queue",
    "queueBy": "with queues: key (default), or turns: also rows with a key go in turns",
    "nullBody": "fail (default): a bad row; or empty: a message with an empty body, a tombstone",
    "badRows": "fail (default), drop, or divert: into Parquet files in badRowsPath",
    "badRowsPath": "directory that tasks and committer share; default inside the store",
    "lockTimeoutS": "seconds to wait for the process that holds the store; default 60",
    "maxMessageSizeBytes": "largest body; default 4 MiB",
    "txnAppId": "name of this writer for exactly-once; default: the query's id",
    "txnVersion": "number of this write under txnAppId; must grow",
    "reusedVersion": "fail (default), or skip: other rows under a version that was written",
    "stagingPath": "directory that tasks and committer share; default inside the store",
    "shards": "a store of its own for each partition: auto, or how many there may be; batch only",
    "segmentBytes": "with shards: size of their log files; default 1g",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The sink's options, checked."""

    path: str
    #: Where there is none.
    create_store: bool
    topic: str | None
    queue_id: int
    queues: int | None
    #: Whether a key, where there is one, chooses the queue; None: not said, as True.
    by_key: bool | None
    null_is_empty: bool
    drop_bad_rows: bool
    bad_rows_path: str | None
    lock_timeout_s: float
    max_body_bytes: int
    app_id: str | None
    version: int | None
    #: Whether other rows under a version that was written are left out, and no error.
    skip_reused: bool
    #: None: in the store.
    staging: str | None
    #: None: one store; 0: as many shards as there are partitions; else the most shards.
    shards: int | None
    segment_bytes: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        options = without_kafkas(options, "the sink")
        given = check_names(options, WRITE_NAMES, "the sink")
        shards = _shards(given)
        bad_rows = choice(given, "badRows", "fail", ("fail", "drop", "divert"))
        if "badrowspath" in given and bad_rows != "divert":
            raise bad_option("badRowsPath", given["badrowspath"], "needs badRows=divert")
        if "queues" in given and "queueid" in given:
            raise bad_option("queues", given["queues"], "not together with queueId")
        version = number(given, "txnVersion", -1, 0, 2**63 - 1)
        if "txnversion" in given and not given.get("txnappid"):
            raise bad_option("txnVersion", given["txnversion"], "needs txnAppId")
        path = store_path(given["path"])
        if is_uri(path):
            allowed = "a store's directory; an archive is written by rocketstore.ship alone"
            raise bad_option("path", shown_uri(path), allowed)
        own = path if shards is not None else os.path.join(path, "rocketstore", "sink")
        staging = given.get("stagingpath")
        bad_rows_path = given.get("badrowspath") or os.path.join(own, "bad_rows")
        shared = "a directory that tasks and driver see under this name"
        return cls(
            path,
            switch(given, "createStore", True),
            given.get("topic"),
            number(given, "queueId", 0, 0, 2**31 - 1),
            number(given, "queues", 0, 1, 65536) or None,
            _by_key(given),
            choice(given, "nullBody", "fail", ("fail", "empty")) == "empty",
            bad_rows != "fail",
            directory_of("badRowsPath", bad_rows_path, shared) if bad_rows == "divert" else None,
            float(number(given, "lockTimeoutS", 60, 0, 86400)),
            size(given, "maxMessageSizeBytes", 4 << 20, 1, 2**31 - 1),
            given.get("txnappid"),
            None if version < 0 else version,
            choice(given, "reusedVersion", "fail", ("fail", "skip")) == "skip",
            # The process that finishes the commit may work in another directory.
            directory_of("stagingPath", staging, shared) if staging else None,
            shards,
            size(given, "segmentBytes", 1 << 30, 64 << 10, 2**31 - 1),
        )


def _by_key(given: Mapping[str, str]) -> bool | None:
    if "queueby" not in given:
        return None
    by_key = choice(given, "queueBy", "key", ("key", "turns")) == "key"
    if "queues" not in given:
        allowed = "needs queues, the number of queues to choose from"
        raise bad_option("queueBy", given["queueby"], allowed)
    return by_key


def _shards(given: Mapping[str, str]) -> int | None:
    if "shards" not in given:
        if "segmentbytes" in given:
            raise bad_option("segmentBytes", given["segmentbytes"], "needs shards")
        return None
    if "stagingpath" in given:
        raise bad_option("stagingPath", given["stagingpath"], "not together with shards")
    if given["shards"].strip().lower() == "auto":
        return 0
    return number(given, "shards", 0, 1, 65536)
