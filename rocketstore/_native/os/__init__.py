"""What the operating system gives: calls, mapped memory, writes that are durable. The lowest native floor.

Nothing else in rocketstore calls libc: `syscalls` holds the one table of calls, which tests replace to let a
call fail. Imports nothing native but this folder; every folder above may import it.

Read in this order:
    store_roots    below which paths no link is followed out of a store
    syscalls       the table of calls, errors with their path, forks, locks between processes
    sigbus_guard   a page that the disk cannot give back becomes an error, not a signal (D-34)
    mapping        memory of one mapped file, counted and unmapped with the last view
    mapped_file    one file: mapped, read, flushed, cut
    durable_write  bytes written and synced in the order that a crash needs
    ring_buffer    memory mapped twice in a row, in which records wait for the next sync

Without a module of their own: `mapped_range.pxd` (pages of a range), `libc_calls.pxd` (declarations),
`beneath.h` (the directory of a name, held open) and `_cython_shared`, which Cython makes: memoryviews and
other helpers, once for all folders.
"""

from typing import Final

#: In the shared object of this folder.
MODULES: Final = (
    "store_roots",
    "syscalls",
    "sigbus_guard",
    "mapping",
    "mapped_file",
    "durable_write",
    "ring_buffer",
)
