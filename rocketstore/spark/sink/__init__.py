"""The sink: rows of Spark as messages, each exactly once.

Tasks write frames of messages to staged files; one committer on the driver's machine appends them
to the store. A journal in the store makes the commit happen once, whichever process dies. Read in
this order:

- `options`: `WriteOptions`, checked. `columns`: which columns are which part of a message.
- `staging`: a task's batches to frames, in files that go to the disk meanwhile; `bad_rows` keeps
  rows that are no messages.
- `journal`: the files that say what was committed. `commit`: the steps of a commit, in order.
- `staged_frames`: reads staged files and compares them with the log. `cleanup`: removes what
  nothing needs any more.
- `store_access`: locks between processes; takes the store's lock, or asks the process that has it.
  `serve`: what that process answers. `group_commit`: offsets that a stream has reached, by the same way.
- `sink`: Spark's writers. `shards`, `shard_writing`, `shard_sink`: a bulk load, one new store for
  each task.

It imports nothing of `spark.source`, which imports of it `shards` and `group_commit`; a host imports `serve`.
"""
