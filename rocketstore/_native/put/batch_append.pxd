# Messages that need not have anything in common, on their way to the log together.

from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.append.appender cimport Log
from rocketstore._native.format.csrc cimport rs_appended, rs_message, rs_queue_state
from rocketstore._native.append.put_result cimport PutResult
from rocketstore._native.put.writer cimport Writer
from rocketstore._native.sync.queue_positions cimport QueueState


cdef class Rows:
    cdef rs_message *messages
    cdef rs_queue_state **queues
    cdef size_t count
    cdef size_t room
    cdef uint8_t *texts  # the property texts of columns
    cdef list kept  # what the messages point at
    cdef list notes  # row, delay or None, and unique id or None, of those that have any of the two
    cdef readonly dict wanted  # the queue offsets that rows have to get, by row
    cdef rs_appended appended
    cdef Writer first
    cdef bytes opening  # of a transaction: what each message says of its place there, but its number
    cdef size_t share  # bytes of the messages in its commit record

    cdef int reserve(self, size_t count) except -1
    cdef int keep(self, Writer writer, QueueState queue, bytes data, bytes texts, object delay,
                  object unique_id) except -1
    cdef bytes expected(self)
    # Before the first is appended: MessageTooLargeError for one that no segment can take.
    cdef int check_sizes(self, Log log, str what) except -1
    # Appends all: in one segment (`whole`), or in as many as it takes. `what` they are called in an error.
    cdef PutResult append(self, Log log, int asked, object timeout_s, bint whole, str what)
