"""The directories of the stores that this process has used. `syscalls` asks for them: it follows no link that leads
out of a store.

Another process may replace a directory by a link at any moment, also right after a check. So `syscalls` opens the
directory of each path first, part by part, and makes the call relative to that descriptor.
"""

import os

# One entry for each path at which this process looked for a store. Written by `hold_root` only.
cdef set roots = set()

# Directories that this process makes in one that somebody else may write: they are no links. Written by `hold_tree`.
cdef set trees = set()

# What lies right below a root and holds files or directories; any other name is no store's.
cdef frozenset directories = frozenset((
    b"commitlog", b"consumequeue", b"batchconsumequeue", b"index", b"config", b"rocketstore",
))


def hold_root(root):
    """Calls with paths below this root keep to the store from now on, for as long as the process runs."""
    roots.add(os.fsencode(root))


def hold_tree(path):
    """Calls with paths below this directory follow no link, nor it, for as long as the process runs."""
    trees.add(os.fsencode(path))


cdef size_t linkable(bytes path):
    cdef Py_ssize_t end = path.find(b"/", 1), next_end
    while end > 0:
        if path[:end] in trees:
            return <size_t>path.rfind(b"/", 0, end)
        next_end = path.find(b"/", end + 1)
        directory = path[end + 1:next_end if next_end > 0 else len(path)]
        if directory in directories and path[:end] in roots:
            return <size_t>end + 1
        end = next_end
    return <size_t>len(path)
