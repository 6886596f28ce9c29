"""The parts of `tools.rebuild`: queues and index from the log, with the store's own dispatcher.

- `parts`: `build_part` dispatches a part of the log into a directory of its own, in any process
  that sees the files; `join_parts` puts the queues of all parts together. `odd_seam` says why parts
  do not fit, where a record depends on records of the part before it: then one part is made of the
  whole log.
- `carried_over`: what no message in the log says. Old queues have units of filler records, and ends
  after their last message; rebuilt queues keep both, so that no queue offset is given out twice.

The old queues and index stay until the new ones are whole and synced.

Imported by `tools.rebuild`. `BuiltPart`, `LogPart` and `build_part` are exported by `tools`, for
`spark.jobs.rebuild`.
"""
