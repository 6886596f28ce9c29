"""Opens, wires and closes one store.

`open.open_engine` is the entry: a path, a mode and options in, an `Engine` out. `Store` delegates
to that engine.

Read in this order:

- `open_options`, `preflight`: what is asked for, and whether the directory can be opened at all.
- `open`, `phases`: which way an open goes, and its phases; `open_files` loads the files, `open_marks`
  reads what the last writer left, `catch_up` fills queues and index.
- `parts`, `wiring`: the parts of a store, and how a writing store gets them, leaf first;
  `initial_offset` gives the first queue offset of a queue.
- `engine`: what every mode has, and the modes that only read.
- `writing_engine`: the mode that writes; `trim` removes segments, `tickets` completes promises.
- `shutdown`, `exit_hook`: a close runs once and to its end, also at the end of the interpreter; an
  open that fails restores the clean stop that it found.
- `rebuild`: an open that replaces queues and index.
- `memory_directory`: where stores in memory lie, and how their files go.

Every higher floor may import it; `log` and lower floors never do. An open runs in
the thread of its caller. Workers run from `WritingEngine.start` until the close, which may have a
thread of its own.
"""
