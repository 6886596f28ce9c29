"""Puts: arguments of Python become records, one or thousands with one call. Entry: `writer.Writer`.

Here arguments are checked, texts encoded and refused with a message that names the argument; the append is
`append`'s. Imports all lower folders but `dispatch`; nothing native imports it.

Read in this order:
    body_buffers      bytes of a body, held for the time of a call
    property_builder  tags, keys and properties in one buffer
    writer            `Writer.put` and `put_batch`: messages of one topic
    put_message       a put with every field of a message
    batch_append      messages of several topics, appended with one lock
    string_rows       columns of texts, row by row
    put_columns       columns of messages
    frames            messages encoded elsewhere
    host_puts         puts of a guest, which is another process
    host_line         its requests and their answers
    completion_port   puts of an event loop, completed when they are durable
"""

from typing import Final

#: In the shared object of this folder.
MODULES: Final = (
    "body_buffers",
    "property_builder",
    "string_rows",
    "writer",
    "put_message",
    "batch_append",
    "put_columns",
    "frames",
    "host_puts",
    "host_line",
    "completion_port",
)
