"""The commands, one a module; `command` in each is the click command.

`cli.app` imports a module of this package when its command is chosen, and lists all of them by a
table of its own. A command checks its arguments, calls the library and prints; it decides nothing
that a program would want as well.

- Write: `ingest` stores lines. Read: `tail`, `get`, `query`.
- Look: `stat` shows what a store has; `verify` checks it.
- Repair: `recover` after a crash, `repair` damage in the log, `rebuild` queues and index.
- Copy: `ship` sealed segments to an archive; `compact` the latest message of each key into a new
  store. Remove: `trim` the oldest segments.
- Share: `serve` holds a store open for other processes.
- Replicate: `follow` keeps a copy of the store of a master; `promote` makes a copy the master.
- Try: `bench` measures this machine.
- `spark` runs jobs of `rocketstore.spark`.

Nothing imports these modules by name but tests.
"""
