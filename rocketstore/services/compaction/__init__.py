"""Compaction: the latest message of each key, in a store of its own; and the compacted topics of
RocketMQ 5.

Read in this order:

- `report`: `CompactionReport`, what a compaction did.
- `new_store`: `NewLog` writes records into the segments of the new store, each at its new place.
  `NewStore` has the work directory, makes queues and index, and names the store.
- `base`: what a compacted store says of itself, and whether it is the base of another compaction.
- `compaction`: `compact` reads the source twice and copies what stays: `scanning.latest_keys` has
  the place of the latest message of each key, by hashes.
- `compacted_topics`: reads what RocketMQ 5 keeps of a compacted topic.
"""
