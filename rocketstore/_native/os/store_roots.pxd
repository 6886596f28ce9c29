cdef extern from "beneath.h" nogil:
    int rs_hold_beneath(const char *path, size_t root, bint whole, const char **last)
    void rs_let_go(int fd)

# The length of the store's root in `path`; 0 for a path that needs no care.
cdef Py_ssize_t root_bytes(bytes path) except -1
