"""Bytes of another log, appended as they are: what a copy of a log does."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from rocketstore._native.append.appender cimport STATE_COPYING, STATE_OPEN, Log
from rocketstore._native.append.guarded_append cimport REFUSED, guarded_append_raw, raw_call
from rocketstore._native.format.csrc_atomic cimport rs_load_int
from rocketstore._native.format.csrc cimport RS_BAD_PHYSICAL_OFFSET, RS_OK, rs_status
from rocketstore._native.os.syscalls cimport check_forked


cdef rs_status append_locked(Log log, raw_call *call) noexcept nogil:
    cdef rs_status status
    if rs_load_int(&log.state) not in (STATE_OPEN, STATE_COPYING):
        return <rs_status>REFUSED
    if log.through is not None:
        log.through.offer(&log.log)
    status = log.settle_locked(guarded_append_raw(call))
    if status == RS_OK and call.appended.aside:
        status = log.write_locked(call.span.bytes, &call.appended)
    return status


def append_raw(Log log not None, int64_t start, const uint8_t[::1] data not None,
               int64_t last_record=-1, int64_t stored_ms=0):
    """Appends bytes at exactly `start`; gives the end of the log. ValueError when it ends elsewhere. Their last
    record begins at `last_record`, and was stored at `stored_ms`, where that is known."""
    cdef raw_call call
    cdef rs_status status
    if data.shape[0] == 0:
        return log.log.wrote
    memset(&call, 0, sizeof(call))
    call.log, call.start = &log.log, start
    call.last_record, call.stored_ms = last_record, stored_ms
    call.span.bytes, call.span.size = &data[0], <size_t>data.shape[0]
    while True:
        check_forked(log.token)
        if rs_load_int(&log.state) not in (STATE_OPEN, STATE_COPYING):
            raise log.owner.refusal()
        with nogil:
            log.mutex.lock()
            status = append_locked(log, &call)
            log.mutex.unlock()
        if status == RS_OK:
            log.after(&call.appended)
            return call.appended.end_offset
        if status == RS_BAD_PHYSICAL_OFFSET:
            raise ValueError(f"start = {start}: the log ends at {log.log.wrote}")
        log.react(status, NULL)
