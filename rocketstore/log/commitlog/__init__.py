"""The commit log of a store that is open for writing: appended, committed, flushed, vouched for.

`commit_log.CommitLog` is the entry. Records are appended by native code (`_native` appender), which
asks it for segments and for room.

Read in this order:

- `commit_log`: segments, roll, refusals; `write_path` is how records reach a file, `log_limits` how
  much may be pending.
- `committer`: from write buffers to files; only a store of the promise `memory` has one.
- `flusher`: from files to the disk. It moves `flushed`; a put that waits alone does so in its place.
- `checkpoint`: the two files that say how far a store is durable, and whether ours still describes
  the bytes of the log; `checkpointer` stores them each second, after a sync of what they speak of
  (D-17, D-18).
- `running_flags`: the reasons why a store refuses puts or reads.
- `clock_monitor`: reports steps of the wall clock (D-28).

Every higher floor may import it; `engine` builds the parts. Flusher, committer and checkpointer are
one thread each. Positions: flushed <= committed <= wrote.
"""
