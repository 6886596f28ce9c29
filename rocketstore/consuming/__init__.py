"""What happens in a poll: where a consumer reads, how far it is, and what its group stores.

`rocketstore.consumer.Consumer` is the entry: it keeps the calls of one thread apart, waits for
messages and hands them out. It uses:

    cursors: `QueueCursors`, one position for each queue, whose turn is next, and the batch that was
        fetched and not handed out yet (`PolledBatch`).
    column_poll: the memory in which `poll_columns` builds its columns; it needs NumPy.
    chosen: what a caller gives: where a consumer begins, and the offsets of a `commit`.
    reading: `Reading`, what the calls of one consumer have read without a gap: what a transaction may
        commit.
    group_claims: `Claim`, which consumer owns a queue of a group.
    group_positions: `GroupPositions`, what one consumer claims, commits and gives back.
    commit_journal: `CommitJournal`, commits that RocketMQ's file does not hold yet.
    offset_tables: what a table of stored offsets says.
    followed_offsets: `FollowerOffsets`, the table of a store that another process writes.
    consumer_offsets: `ConsumerOffsets`, the table of all groups of a store, and its file
        `config/consumerOffset.json`.

Read `chosen`, then `cursors`, then `group_positions`. Messages come from `log.read.reader`; a
cursor knows nothing of files.

A position is the queue offset of the next message. It counts what was handed out, not what was
fetched, so that an iteration that stops early loses nothing.

Every higher floor may import this package; the engine takes the offsets of groups only.
"""
