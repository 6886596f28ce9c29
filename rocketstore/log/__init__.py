"""The log of one store: its files, and what is derived from them. No public name; `engine` builds
the parts.

Read in this order:

- `layout`: names, paths and owners of files; the lock; the small state files.
- `damage`: what a check found wrong with a range of the log.
- `worker`: the thread that every service of the store is.
- `mapped_files`: one mapped file, a queue of them, and how the next one is made.
- `commitlog`: append, commit, flush; the checkpoint that says how far the log is durable.
- `queues`, `index`: what dispatch writes.
- `dispatch`: from the log to consume queues and index.
- `read`: messages and columns for a caller.
- `recovery`: the end of the log after a crash.
- `follow`: the same reading in a process that does not write.

Positions, in bytes of the log: dispatched <= visible <= committed <= wrote, and
flushed <= committed (docs/architecture.md). The appender moves `wrote`, and on the mapped path
`committed`, which the committer or the thread that flushes moves otherwise. The thread that holds
the flush lock moves `flushed`: the flusher, or a put that waits alone. `visible` follows `flushed`
in a `disk` store, else `committed`. The dispatcher moves `dispatched` and `indexed`.

A part imports only parts before it in this list; tests/structure holds the order.
"""
