"""The parts of `tools.verify`: each walks one kind of file and adds faults to `Findings`.

In the order in which `verify` calls them:

- `log`: every record, its checksums, and how records follow each other. `scan_log` is quick and
  native, and gives up at the first doubt; `walk_log` then goes record by record. `LogFacts` is what
  the log says of all other files.
- `queues`: every queue unit against its record, and every record for its unit.
- `batches`: the same for the queues of inner batches of RocketMQ 5.
- `derived`: the key index, both checkpoints, and the offsets of consumer groups.

A walk changes nothing and takes no lock. With a live writer it checks what that has published.

Imported by `tools.verify`; `offsets_fault` is exported by `tools`.
"""
