"""`rocketstore.ship`: copies sealed segments of a store to an archive."""

from __future__ import annotations

import os

from rocketstore.api.open import open_store
from rocketstore.config.typed_options import OpenOptions
from rocketstore.shipping import ShipReport, ship_store
from rocketstore.store import Store
from rocketstore.values.arguments import Progress
from rocketstore.values.public import public

__all__ = ["ship"]


@public
def ship(
    source: str | os.PathLike[str] | Store,
    uri: str,
    *,
    tail: bool = False,
    force: bool = False,
    commit_log_dir: str = "",
    progress: Progress | None = None,
) -> ShipReport:
    """Copies the sealed segments of a store to the archive at `uri`.

    A segment is sealed when no message can be added to it and all of it is on the disk. Each is
    read and checked record by record, copied under its name, and then named in `manifest.json`, so
    that readers never see a part. A segment that the manifest names is not copied again, and stays
    in the archive when the store trims it. The next call finishes a call that was stopped. No lock
    is taken; writers go on.

    Args:
        source: The path of a store, or an open store.
        uri: What `pyarrow.fs` knows: s3://bucket/prefix, gs://…, hdfs://…, file:///directory.
        tail: Also copy what is on the disk of the segment that is not full, as an object of its own,
            `<segment>.tail`. The next call with `tail` replaces it by a longer one, or by the whole
            segment. Releases up to 0.1 do not read an archive with a tail.
        force: Also onto an archive that has no segment in common with the log, and where nothing
            shows that the log goes on it. A scan does not read over that place.
        commit_log_dir: All directories of the log, separated by ",", where it has several.
        progress: Called with ("ship", done_bytes, total_bytes).

    Raises:
        ConfigError: No such place, or the archive of another store, or of another log of this one,
            or, without `force`, one that nothing shows to be of this log;
            `tail` at a place that cannot replace an object in one step (hdfs://).
        CorruptRecordError: A segment is damaged, or missing between others. It is not shipped before
            a repair; all others are. The notes name each that is left out.
        MissingSegmentsError: Segments are missing at an end of the log. Those that are there are
            shipped. The text says how many messages the queues know that are not there.
        ReadFailedError: The disk, or the place, does not give its bytes back. Segments that the disk
            does give are shipped.
        OSError: The place does not take an object; `filename` says which.
        ImportError: There is no pyarrow (`rocketstore[arrow]`).
    """
    if isinstance(source, Store):
        if commit_log_dir:
            raise ValueError(f"commit_log_dir = {commit_log_dir!r}: an open store knows its own")
        return ship_store(source._open(), uri, progress, tail=tail, force=force)
    options: OpenOptions = {"index_enabled": False, "commit_log_dir": commit_log_dir}
    with open_store(source, "r", force=True, **options) as store:
        return ship_store(store._open(), uri, progress, tail=tail, force=force)
