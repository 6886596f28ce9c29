"""The parts of `tools.verify`: each walks one kind of file and adds faults to `Findings`.

In the order in which `verify` calls them:

- `waiting`: which records may have no unit or entry yet: the next open makes it, or the writer.
- `log`: every record, its checksums, and how records follow each other. `scan_log` is quick and
  native, and gives up at the first doubt; `walk_log` then goes record by record. `facts` are what
  the log says of all other files; `holes` are where it has no records.
- `queues`: every queue unit against its record; `missing`: every record for its unit.
- `batches`: the same for the queues of inner batches of RocketMQ 5.
- `names`: the records whose topic or queue id can be no directory.
- `losses`: which messages are gone from the log, by the units that point into its holes.
- `hidden`: which messages the log has and the queues have not, where there are such.
- `keys`: each record with keys, or with tags where the index has those, for its entry.
- `broker`: names and JSON files that keep RocketMQ from starting; `in_the_way`: what lies in place of
  files and directories of queues.
- `derived`: the key index, both checkpoints, and the offsets of consumer groups.

A walk changes nothing and takes no lock. With a live writer it checks what that has published.

Imported by `tools.verify`; `offsets_fault` is exported by `tools`.
"""
