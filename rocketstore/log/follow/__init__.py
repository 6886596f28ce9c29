"""Reads a store that another process writes, without a lock and without a change on disk.

`follower.Follower` is the entry: a `ReadSource` over the files of a store.

Read in this order:

- `writer_monitor`: which program writes the store at this moment, and looks that no process recovers
  or rebuilds meanwhile.
- `follower`: moves the bounds of readers to where the writer is, and waits for more.
- `log_view`: the log's files, where its last record ends, and whether it still has what readers were
  shown.
- `queue`: one consume queue, whose end is found from its units; `queue_files` maps its files,
  and says whether a unit is that of its record where no rocketstore writer says how far units are
  whole.
- `catching_up`: waits a moment for a writer whose queues or index lag.
- `views`: the positions and the index that a follower shows its store.

Every higher floor may import it. Nothing here has a thread. Any thread may use a
follower: one lock guards what it knows of the writer and of the log, each queue has its own.
"""
