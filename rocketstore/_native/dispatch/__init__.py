"""From the log to queues and index: each record becomes a unit and its keys become entries.

The loop writes queue and index files, and nothing else does while the store is open. Imports `os`, `format`
and `sync`; it knows nothing of puts, and no native folder imports it.

Read in this order:
    dispatch_loop     walks a range of the log and writes what its records say; no GIL
    dispatch_service  serves the loop in its thread when something has become visible
    unit_look         walks a range of the log and looks whether the units are there; writes nothing
    unique_claims     whether a message with a unique id may be in the log, by what was dispatched

A queue or a file that is not open yet ends a walk with a reason; `rocketstore.log.dispatch.dispatcher` opens
it and goes on. A damaged record ends it, too: the walk never passes over one.
"""

from typing import Final

#: In the shared object of this folder.
MODULES: Final = (
    "dispatch_loop",
    "dispatch_service",
    "unit_look",
    "unique_claims",
)
