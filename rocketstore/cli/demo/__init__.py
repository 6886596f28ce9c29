"""The parts of `rocketstore demo` and `rocketstore spark demo`.

The demo stores every source line of the Python library, kills writers at random points, and
compares what is read back with the files. Read in this order:

- `sources`: the files, how they are stored, read back and compared.
- `kills`: starts and kills writers, and checks what recovery finds. `writer` is the process that is
  killed.
- `results`: one row for each part, and the table of all of them.
- `spark`: the same files through Spark.
- `directory`: where a demo may make its store, and scratch directories.

Imported by `cli.commands` (`demo`, `bench`, `spark`) only.
"""
