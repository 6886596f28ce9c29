"""The directories of the stores that this process has used. `syscalls` asks for them: it follows no link that leads
out of a store.

Another process may replace a directory of a store by a link at any moment, also right after a check. So `syscalls`
opens the directory of a path first, by a descriptor of the root, and makes the call relative to that descriptor.
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
