"""The roots of the stores of this process: below them `syscalls` follows no link that leads out of a store.

A check of a directory says nothing about the next moment: whoever may write a store's directory can put a
link there before the next call. So each call takes the directory's descriptor, not its name.
"""

import os

# One entry for each path at which this process looked for a store. Written by `hold_root` only.
cdef set roots = set()

# What lies right below a root and holds files or directories; any other name is no store's.
cdef frozenset directories = frozenset((
    b"commitlog", b"consumequeue", b"batchconsumequeue", b"index", b"config", b"rocketstore",
))


def hold_root(root):
    """Calls with paths below this root keep to the store from now on, for as long as the process runs."""
    roots.add(os.fsencode(root))


cdef Py_ssize_t root_bytes(bytes path) except -1:
    cdef Py_ssize_t end = path.find(b"/", 1), next_end
    while end > 0:
        next_end = path.find(b"/", end + 1)
        directory = path[end + 1:next_end if next_end > 0 else len(path)]
        if directory in directories and path[:end] in roots:
            return end
        end = next_end
    return 0
