"""`rocketstore.ship`: copies sealed segments of a store to an archive."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rocketstore.api.open import open_store
from rocketstore.shipping import ShipReport, ship_store
from rocketstore.store import Store

if TYPE_CHECKING:
    from rocketstore.values.callbacks import Progress

__all__ = ["ship"]


def ship(
    source: str | os.PathLike[str] | Store,
    uri: str,
    *,
    commit_log_dir: str = "",
    progress: Progress | None = None,
) -> ShipReport:
    """Copies the sealed segments of a store, a path or an open one, to the archive at `uri`: those that no
    message can be added to any more, and that are on the disk as a whole.

    Each is read and checked record by record, copied under its name, and then named in `manifest.json`, so
    that readers never see a part. What the manifest names is not copied again, and stays when the store
    trims it. A call that was stopped is finished by the next one. No lock is taken; writers go on.

    Args:
        uri: what `pyarrow.fs` knows: s3://bucket/prefix, gs://…, hdfs://…, file:///directory.
        commit_log_dir: All directories of the log, with "," between them, where it has several.
        progress: called with ("ship", done_bytes, total_bytes).

    Raises:
        ConfigError: no such place, or the archive of another store, or of another log of this one.
        CorruptRecordError: a segment is damaged; it and what follows is not shipped before it is repaired.
        ReadFailedError: the disk, or the place, does not give back what is there.
        OSError: the place does not take an object; `filename` says which.
        ImportError: there is no pyarrow (`rocketstore[arrow]`).
    """
    if isinstance(source, Store):
        if commit_log_dir:
            raise ValueError(f"commit_log_dir = {commit_log_dir!r}: an open store knows its own")
        return ship_store(source, uri, progress)
    with open_store(source, "r", index_enabled=False, commit_log_dir=commit_log_dir) as store:
        return ship_store(store, uri, progress)
