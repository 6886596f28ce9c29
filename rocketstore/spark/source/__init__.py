"""The source: topics of a store as a batch or a stream of rows.

The modules that decide need no Spark, and their tests none. Read in this order:

- `options`: `ReadOptions`, the options of the source, checked. `conditions`: what a query asks of
  rows.
- `plan`: from options and a store to scans, one a partition, and from a scan to Arrow batches.
- `queue_offsets`: where a read begins and ends in each queue. `topic_check`: whether the topics
  exist.
- `source`: Spark's readers. That of batches uses `pushdown` (Spark's filters as conditions), that
  of streams `stream_progress` (how far a stream has come), `history` (whether this is its log),
  `microbatch` (where a batch may end) and `group_offsets` (progress as offsets of a consumer group).
- `checkpoints`: where a checkpoint has come, for a query with a new one.

Of `spark.sink` it imports `shards`, and what stores the offsets of a group. The sink imports nothing
of it.
"""
