# The append of a caller that cannot wait: an event loop's.

from libc.string cimport memset

from rocketstore._native.append.appender cimport Log
from rocketstore._native.format.csrc cimport (
    RS_END_OF_FILE, RS_FULL, RS_NO_BLOCKS, RS_OK, rs_appended, rs_message,
    rs_status,
)
from rocketstore._native.append.guarded_append cimport append_call
from rocketstore._native.sync.queue_positions cimport QueueState


cdef inline int append_now(Log log, rs_message *message, QueueState queue,
                           rs_appended *appended) except -1:
    """One record: 1 when it is in the log, 0 when it would have to wait for a segment, for blocks or for room."""
    cdef append_call call
    cdef rs_status status
    if log.elsewhere is not None:
        return 0  # the answer may take its time
    memset(&call, 0, sizeof(call))
    call.log, call.message, call.appended = &log.log, message, appended
    call.queue = &queue.state
    while True:
        log.ready()
        if log.mutex.try_lock():
            status = log.append_locked(&call)
            log.mutex.unlock()
        else:
            with nogil:
                log.mutex.lock()  # held for the copy of a message or batch, never for a wait
                status = log.append_locked(&call)
                log.mutex.unlock()
        if status == RS_OK:
            log.after(appended)
            return 1
        if status == RS_END_OF_FILE or status == RS_NO_BLOCKS or status == RS_FULL:
            return 0
        log.react(status, &call)
