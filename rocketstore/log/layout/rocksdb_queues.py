"""Consume queues that RocketMQ keeps in RocksDB (`storeType=defaultRocksDB`), which is not read
here (format.md 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketstore.errors import HINTS, ReadFailedError

if TYPE_CHECKING:
    from pathlib import Path

    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["refuse_rocksdb_queues", "rocksdb_queues", "rocksdb_remedy"]

#: Since 5.5.0, with `useSeparateStorePathForRocksdbCQ`; else they lie among the queue files.
SEPARATE: Final = "consumequeue_rocksdb"


def rocksdb_queues(layout: StoreLayout) -> Path | None:
    """The directory of the queues that are in RocksDB; None where there are none."""
    for directory in (layout.consume_queue, layout.root / SEPARATE):
        if (directory / "CURRENT").is_file():
            return directory
    return None


def rocksdb_remedy(directory: Path) -> str:
    """Why such a store is not written, and what to do."""
    return (
        f"has its consume queues in RocksDB ({directory}), which is not written here: "
        f"{HINTS['reader']}; or move the RocksDB files out of the store, and an open makes queue "
        "files from the log, for a broker with storeType=default"
    )


def refuse_rocksdb_queues(layout: StoreLayout) -> None:
    """Raises ReadFailedError where a broker writes queues that cannot be followed."""
    directory = rocksdb_queues(layout)
    if directory is not None:
        raise ReadFailedError(
            f"{layout.root}: the broker that writes this store keeps the consume queues in RocksDB "
            f"({directory}), which is not read: stop the broker and open the store again, or scan "
            "the log (rocketstore.scan)"
        )
