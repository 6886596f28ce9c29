"""Finds the end of a log after a crash, and makes the log durable up to there.

`recovery.recover` is the entry: a loaded log and what the store says of its last writer in, a
`RecoveryReport` out. It decides; the other modules find or change one thing each.

Read in this order:

- `marks`: what the files say about the last writer, the input of every decision.
- `recovery`: from where to check, what to believe, in which order to change the disk;
  `rocketmq_start` is RocketMQ's rule for a log that another program wrote last.
- `walk`: checks records one by one and judges the first that is none; `parallel_scan` does the
  checking on all cores.
- `repair`: every change on disk; `quarantine` copies bytes before they go.
- `broker_state`: sets timers and RocksDB of a broker aside that speak of lost records.
- `progress`: what the next recovery finds on disk: how far one came that was killed, and where to
  cut the log at a sound record.
- `report`: what was found and done; `losses` names the lost messages by the units of their queues.
- `hidden_messages`: makes the units that the queues lack for messages of the log;
  `returned_topics` names queues that a broker may have deleted.
- `missing_segments`, `batches`: the same questions for a log that is only read.

Every higher floor may import it. One thread runs a recovery, before any worker of the
store runs; only `parallel_scan` has threads, which end with the walk. The rules D-01 … D-40 are in
docs/durability.md.
"""
