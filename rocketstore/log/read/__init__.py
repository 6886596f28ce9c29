"""Reads messages from queues and columns from the log, without changing either.

`reader.Reader` is the entry for messages, `column_reader` the one for columns. A reader works on a
`ReadSource`, so it does not know which process writes the store.

Read in this order:

- `source`: what a reader needs of a store; `LocalSource` is the store of this process, and
  `log.follow` has the one of another; `succession` goes over from one source to the next.
- `reader`: queue offset → unit → record → `Message`; `unit_place` reads messages from a unit on,
  `fetch_result` has RocketMQ's statuses, and the bounds that a reader may see at one moment.
- `time_search`: queue offset of a time; `query`: messages of a key; `unique_ids`: puts that give
  the id of a message.
- `named_topics`: topics that users name, and that cannot be or are not there.
- `batch_queue`: queues whose units have several messages each; `batch_reader` takes those messages
  out of their record.
- `column_reader`: whole segments as columns, in physical order.

`log.follow`, `log.recovery` and every higher floor may import it. Nothing here has a thread. Any
number of threads may share a reader or a source.
"""
