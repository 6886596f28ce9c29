"""Threads: how they sleep, wake each other and agree on positions. No policy.

Each position has one writer. Readers load it with acquire; nobody polls. Imports `os` and `format`; `append`,
`put` and `dispatch` may import it.

Read in this order:
    futex             event count, event file descriptor, mutex without the GIL, clocks
    wait_queue        threads that wait for an offset, called in the order of the log
    signal_safe_lock  a lock for Python code that signal handlers may take as well
    durations         how long puts and flushes took, counted by classes
    positions         the page of positions that processes share
    queue_positions   next offset and counters of one queue
"""

from typing import Final

#: In the shared object of this folder.
MODULES: Final = (
    "futex",
    "wait_queue",
    "signal_safe_lock",
    "durations",
    "positions",
    "queue_positions",
)
