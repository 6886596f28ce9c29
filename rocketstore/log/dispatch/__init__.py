"""Writes consume queues and the key index from the log (RocketMQ's "reput").

`dispatcher.Dispatcher` is the entry. It is the only writer of the positions `dispatched` and
`indexed`, of queue units and of index entries.

Read in this order:

- `dispatcher`: when dispatch runs, how far, and where it stops. The walk itself is native
  (`_native` dispatch loop), and stops for what needs Python.
- `loop_help`: what that is: new queues and files, gaps, conflicts, further queues of a record.
- `gap_budget`: how many units the gaps may have that a log explains.
- `index_filler`: puts the keys that an index missed while it had no room.
- `generations`: queues whose numbering began again at 0; which of two records with one queue offset
  keeps its unit.
- `unit_records`: the record that a unit points to, and whether it has the unit's place.
- `missing_units`: which records of the log have no unit; `refill` makes the units of these queues.
- `wrong_units`: the other way round: units that point to records of other queues, or to none.
- `arrival_notifier`: calls a listener when messages arrive.

Every higher floor may import it. One thread at a time dispatches: the worker, or a
reader that would wait for it; a native turn decides. The notifier has a thread of its own.
"""
