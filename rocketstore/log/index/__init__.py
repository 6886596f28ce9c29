"""The key index of a store: which records may have a key.

`store.IndexStore` is the entry. The index is derived from the log and optional: where it cannot be
written, the store goes on without it.

Read in this order:

- `segment`: one index file: how it is named, made, opened, synced and checked.
- `store`: all index files, oldest first: room for more keys, queries, trim.
- `inspection`: what an open sees in an index: whether it can be believed, and whether it has entries
  for tags, as RocketMQ writes them since 5.4.

Every higher floor may import it. The dispatcher is the one thread that writes entries; any thread
may query.
"""
