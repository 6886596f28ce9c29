"""Files of equal size, mapped into memory, which together are one endless file.

`mapped_file_queue.MappedFileQueue` is the entry: the files of one directory, for the commit log
and for consume queues. One file is the native `MappedFile`.

Read in this order:

- `mapped_files`: the snapshot of files that readers share, and their descriptors.
- `mapped_file_queue`: loads, makes, repairs and removes files on disk.
- `new_file`: one new file, whole and synced before it has its name (D-06).
- `preallocator`: makes the log's next segment before a put needs it.
- `segment_blocks`: reserves the blocks of segments in steps ahead of the writer (decision 0033).
- `locked_segments`: keeps the segments that puts go to in memory.
- `populator`: makes its pages ready before the appender comes to them.
- `second_names`: hard links that keep segments from a RocketMQ that starts meanwhile (D-05).
- `write_buffer_pool`: RocketMQ's transient store pool, for the promise `memory`.
- `memory_log`: a log that is read once and kept in memory.

`log.commitlog`, `log.queues` and higher floors may import it. The preallocator and the populator
are threads of their own; a queue of files is changed by one thread at a time, under its lock.
"""
