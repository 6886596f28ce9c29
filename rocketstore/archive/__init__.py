"""Archives: sealed segments of a log in a directory or an object store, with a manifest.

`rocketstore.ship` (`shipping`) writes an archive; `rocketstore.scan` (`scanning`) reads it as it
reads a store. Both reach it through pyarrow, which is imported when the first archive is opened.

Read in this order:

- `manifest`: `Manifest` lists the `Segment`s, their checksums, topics and times. It grows by
  replacement.
- `object_store`: `ObjectStore` opens, writes and lists objects; `is_uri` says whether a place
  is an archive.
- `writer`: `ArchiveWriter` swaps the manifest, and refuses another log.
- `shipped`: a note next to a log: which of its ranges archives have.
- `segments`: `ObjectFiles` gives the objects to a scan as the files of a log, one piece in memory
  at a time.

Every higher floor may import it, faces the names below only. It imports `log.read`, `log.layout` and
lower floors.
"""

from __future__ import annotations

from rocketstore.archive.manifest import MANIFEST_NAME, Segment
from rocketstore.archive.object_store import (
    NoObjectStoreError,
    ObjectStore,
    is_uri,
    shown_uri,
    sync_path,
)

__all__ = [
    "MANIFEST_NAME",
    "NoObjectStoreError",
    "ObjectStore",
    "Segment",
    "is_uri",
    "shown_uri",
    "sync_path",
]
