"""The log of one store: its files, and what is derived from them. No public name; `engine` builds
the parts.

Read in this order:

- `layout`: names, paths and owners of files; the lock; the small state files.
- `mapped_files`: one mapped file, a queue of them, and how the next one is made.
- `commitlog`: append, commit, flush; the checkpoint that says how far the log is durable.
- `dispatch`: from the log to consume queues and index.
- `queues`, `index`: what dispatch writes.
- `read`: messages and columns for a caller.
- `recovery`: the end of the log after a crash.
- `follow`: the same reading in a process that does not write.
- `damage`: what a check found wrong with a range of the log.
- `worker`: the thread that every service of the store is.

Positions, in bytes of the log: dispatched <= visible <= committed <= wrote, and
flushed <= committed (docs/architecture.md). Each position has one writer: the appender `wrote`, the
committer or the flusher `committed` and `visible`, the flusher `flushed`, the dispatcher
`dispatched` and `indexed`.

A part imports parts before it in this list only; tests/structure holds the order.
"""
