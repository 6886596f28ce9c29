"""The end of the log: one record or a batch appended, and flushed for all that wait. Entry: `appender.Log`.

`Log` is the only writer of the wrote position. Under the flush lock of `GroupCommit` one thread at a time moves
`flushed`: the flusher (`log.commitlog`), or a put that waits alone. Imports `os`, `format` and `sync`; of native
folders, only `put` may import it.

Read in this order:
    put_result            what a put gives back: offsets, ids, the promise that was met
    guarded_append.pxd    the call of `csrc` that appends, safe from a failing page
    appender              the log as an appender sees it: its segment, its limits, its lock
    raw_append            bytes of another log, as they are
    key_watch             which keys were put meanwhile
    try_append.pxd        an append that never waits, for event loops
    copies                puts that wait for the disks of other machines
    guest_line            requests to the process that holds the log, and their answers
    elsewhere             the end of a log that another process holds
    group_commit          one sync for all puts that wait (D-12)
    direct_write          a record written around the mapping where its pages are not there yet
    page_populator        pages of the next part of the log, made ready in the background
"""

from typing import Final

#: In the shared object of this folder.
MODULES: Final = (
    "put_result",
    "page_populator",
    "direct_write",
    "copies",
    "group_commit",
    "guest_line",
    "elsewhere",
    "appender",
    "raw_append",
    "key_watch",
)
