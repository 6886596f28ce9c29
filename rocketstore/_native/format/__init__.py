"""Bytes of the store: records, queue units and index files. `csrc` knows the layout, these ask it.

A module takes a buffer or a mapped file, calls one function of `csrc` and turns its status into a result or
an error. Imports `os`; `sync` and all above may import it.

Read in this order:
    csrc.pxd           every function and constant of `csrc` that Cython uses
    status             a status of `csrc` as an error: the one place that maps them
    constants          numbers of the format, for Python
    codec              checksums, properties, hosts, message ids
    message            one record, read without copies
    scanner            records of a range, one after the other, verified
    queue_file         units of a consume queue file
    queue_reader       units, and the messages that they lead to
    queue_table.pxd    a table of queues that grows, and a walk over the records of a segment
    index_file         slots and entries of an index file
    string_columns     texts and properties as Arrow lays them out (`csrc_columns.pxd`)
    filter_program     an expression over properties, for the scanner
    column_scanner     records of a range as columns
"""

from typing import Final

import rocketstore.values.java_text  # noqa: F401  how texts that are not UTF-8 are decoded

#: In the shared object of this folder.
MODULES: Final = (
    "status",
    "constants",
    "codec",
    "message",
    "scanner",
    "queue_file",
    "queue_reader",
    "index_file",
    "string_columns",
    "filter_program",
    "column_scanner",
)
