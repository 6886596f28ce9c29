"""What lies in the directory of a store: names, owners, the lock and the small files.

`paths.StoreLayout` is the entry: it has the path of everything in one store (docs/format.md 1).

Read in this order:

- `paths`: paths, file names from offsets, rules for the names of topics and groups.
- `listing`: the files of a log or queue directory, before any of them is believed.
- `log_dirs`: a log in several directories, or outside of its store.
- `ownership`: owner and mode of what the store makes (D-09).
- `state_files`: small files that are replaced as a whole, JSON in many of them, and those of a fixed
  length that are written in place.
- `log_place`: which log a state belongs to, by an offset and the bytes that end there.
- `lock`: the right to write a store, and the `abort` file that says "not stopped cleanly".
- `positions_page`: how far a running store is, for readers in other processes (D-30).
- `identity`: whether the directory still holds the store that a reader opened.
- `store_json`: what a store is and which part of its log other programs wrote.
- `named_holds`: names by which programs keep a part of the log.
- `disk_blocks`: blocks on disk for a part of a file, ahead of what is written there.
- `file_system`: what the file system allows (D-39).
- `destroy`: removes a store, and nothing else.

Every higher floor may import it; it imports `_native`, `errors` and `values` only. Nothing here has
a thread. Files that change are changed under the store's lock.
"""
