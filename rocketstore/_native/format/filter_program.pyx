"""An expression over properties as a program of `csrc` (rs_filter.h), checked once when it is made."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport uint8_t, uint16_t, uint32_t

from rocketstore._native.format.message cimport Message
from rocketstore._native.format.string_columns cimport allocated
from rocketstore._native.os.sigbus_guard cimport copied_bytes, guarded, raise_unread

#: Operations by name; those after "not" are of one property.
CODES = {
    "constant": RS_FILTER_CONSTANT,
    "and": RS_FILTER_AND,
    "or": RS_FILTER_OR,
    "not": RS_FILTER_NOT,
    "is_null": RS_FILTER_IS_NULL,
    "cast": RS_FILTER_CAST,
    "truth": RS_FILTER_TRUTH,
    "in": RS_FILTER_IN,
    "contains": RS_FILTER_CONTAINS,
    "starts": RS_FILTER_STARTS,
    "ends": RS_FILTER_ENDS,
    "int": RS_FILTER_INT,
    "long": RS_FILTER_LONG,
    "double": RS_FILTER_DOUBLE,
}
SLOTS_MAX = RS_FILTER_SLOTS_MAX
#: Bits of `accepts`.
LESS, SAME, MORE = RS_FILTER_LESS, RS_FILTER_SAME, RS_FILTER_MORE
ELSE_FALSE = RS_FILTER_ELSE_FALSE
#: Verdicts; of what is unsure somebody else decides.
VERDICTS = (False, True, None, "error", "unsure")


cdef struct filter_call:
    const rs_filter *filter
    rs_span *properties
    uint8_t *verdicts
    size_t count


cdef void filter_work(void *given) noexcept nogil:
    cdef filter_call *call = <filter_call *>given
    cdef size_t i
    for i in range(call.count):
        call.verdicts[i] = <uint8_t>rs_filter_verdict(call.filter, call.properties[i])


cdef rs_span spanned(bytes text) noexcept:
    cdef rs_span span
    span.bytes, span.size = <const uint8_t *>PyBytes_AS_STRING(text), <size_t>len(text)
    return span


@cython.final
@cython.auto_pickle(False)
cdef class FilterProgram:
    """Threads may share it."""

    def __cinit__(self, ops, names, unsure):
        cdef list texts = []
        cdef size_t i
        cdef Py_ssize_t depth = 0
        cdef uint32_t *borders
        names = tuple(names)
        ops = list(ops)
        if len(names) > RS_FILTER_SLOTS_MAX:
            raise ValueError(f"{len(names)} properties: at most {RS_FILTER_SLOTS_MAX}")
        self.unsure = unsure
        self.ops = <rs_filter_op *>allocated(<size_t>len(ops), sizeof(rs_filter_op))
        for i in range(<size_t>len(ops)):
            depth = self.put(&self.ops[i], ops[i], len(names), texts, depth)
        if depth != 1:
            raise ValueError(f"a program that leaves {depth} verdicts")
        self.kept = (names, tuple(texts))
        self.names = <rs_span *>allocated(<size_t>len(names), sizeof(rs_span))
        for i, name in enumerate(names):
            self.names[i] = spanned(name)
        self.texts = <rs_span *>allocated(<size_t>len(texts), sizeof(rs_span))
        for i, text in enumerate(texts):
            self.texts[i] = spanned(text)
        self.borders = borders = <uint32_t *>allocated(
            <size_t>sum(map(len, texts)), sizeof(uint32_t))
        for i in range(<size_t>len(ops)):
            if self.ops[i].code == RS_FILTER_CONTAINS:
                self.ops[i].borders = borders
                rs_filter_borders(self.texts[self.ops[i].first_text], borders)
                borders += self.texts[self.ops[i].first_text].size
        self.filter.ops, self.filter.op_count = self.ops, <size_t>len(ops)
        self.filter.names, self.filter.slot_count = self.names, <size_t>len(names)
        self.filter.texts = self.texts

    def __dealloc__(self):
        PyMem_RawFree(self.ops)
        PyMem_RawFree(self.names)
        PyMem_RawFree(self.texts)
        PyMem_RawFree(self.borders)

    cdef Py_ssize_t put(self, rs_filter_op *to, tuple op, Py_ssize_t slots, list texts,
                        Py_ssize_t depth) except -1:
        """One operation; how many verdicts there are after it."""
        code, slot, own, number, accepts, negated = op
        to.code = <uint8_t>CODES[code]
        to.accepts, to.negated = <uint8_t>accepts, negated
        to.first_text, to.text_count = <uint32_t>len(texts), <uint32_t>len(own)
        to.number = 0 if isinstance(number, float) else number
        to.real = number if isinstance(number, float) else 0.0
        to.slot, to.borders = 0, NULL
        texts += own
        if code in ("and", "or"):
            depth -= 1
        elif code != "not":
            depth += 1
        if code not in ("constant", "and", "or", "not"):
            if not 0 <= slot < slots:
                raise ValueError(f"slot {slot} of {slots}")
            to.slot = <uint16_t>slot
        if code in ("contains", "starts", "ends") and (len(own) != 1 or not own[0]):
            raise ValueError(f"{code}: one text, not empty")
        if code == "constant" and not 0 <= number <= <int>RS_VERDICT_UNSURE:
            raise ValueError(f"{number} is no verdict")
        if not 1 <= depth <= RS_FILTER_STACK_MAX:
            raise ValueError(f"{depth} verdicts at a time")
        return depth

    def verdict(self, bytes properties not None):
        """One of VERDICTS, for a property text."""
        return VERDICTS[<int>rs_filter_verdict(&self.filter, spanned(properties))]

    def matching(self, list messages not None):
        """Those of the messages that match, in their order."""
        cdef filter_call call
        cdef list found = []
        cdef size_t i
        cdef bint whole
        call.filter, call.count = &self.filter, <size_t>len(messages)
        call.properties = <rs_span *>allocated(call.count, sizeof(rs_span) + 1)
        call.verdicts = <uint8_t *>(call.properties + call.count)
        try:
            for i in range(call.count):
                call.properties[i] = (<Message?>messages[i]).record.properties
            with nogil:
                whole = guarded(filter_work, &call)
            if not whole:
                raise_unread("the log", "a message")
            for i in range(call.count):
                if call.verdicts[i] == RS_VERDICT_TRUE or (
                        call.verdicts[i] == RS_VERDICT_UNSURE and self.answer(copied_bytes(
                            call.properties[i].bytes, call.properties[i].size, "a message"))):
                    found.append(messages[i])
        finally:
            PyMem_RawFree(call.properties)
        return found

    cdef bint answer(self, bytes properties) except -1:
        return self.unsure(properties)
