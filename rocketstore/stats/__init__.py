"""Counters, rates and latencies of one open store.

`statistics.StoreStatistics` is the entry: parts of the store report events to it, and `snapshot`
returns a frozen `Statistics`.

Read in this order:

- `histogram`: durations in buckets, cheap to record.
- `statistics`: what is counted, and the snapshot that users get.

Every floor above may import it; it imports nothing of the store. Any thread may
record; the checkpointer samples rates once a second.
"""
