"""Messages and lines that come one after the other, for `tail` and `ingest`.

- `lines`: the lines of a file or a pipe, in chunks as they arrive. A signal ends the wait, never a
  put.
- `bad_lines`: what becomes of a line that no message can hold: the run stops, or goes on.
- `queue_messages`: one queue, message by message. It reports damaged records and goes on after
  them. `follow_topic` is `tail -f`.

These modules print no results. `lines` and `follow_topic` wait without an end; a signal or an error
stops them, and both leave the store for the command to close.

Imported by `cli.commands` only.
"""
