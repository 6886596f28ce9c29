"""Consume queues: for each message of a (topic, queue id), where its record is in the log.

`consume_queue_store.ConsumeQueueStore` is the entry: all queues of a store.

Read in this order:

- `units`: the unit of 20 bytes; `extension_units` are the longer ones a broker may add.
- `consume_queue`: the units of one queue; `queue_files` maps, grows and syncs its files.
- `queue_preallocator`: makes files of queues before the dispatcher needs them.
- `consume_queue_store`: queues by topic and id, and which of them have lost units; `directories`:
  where they lie on disk.
- `mapping_cache`: which queues have their files mapped; a process may have fewer mappings.
- `saved_ends`: where queues ended at the last close; `files_stamp` shows whether a program has changed their files.
- `blocked_queues`: those that take no units, since something else is in place of their files.
- `multi_dispatch`: further queues that a record names (RocketMQ's multi dispatch and LMQ).
- `put_states`: the next queue offset of each queue that puts go to; `delayed_puts`: the queue of
  a delay level, and which service a message there wakes.

`log.dispatch`, `log.read` and every higher floor may import it. Only the dispatcher writes units and
makes files; the preallocator has a thread; any thread may read or sync.
"""
