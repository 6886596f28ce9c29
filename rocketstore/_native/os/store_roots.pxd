cdef extern from "beneath.h" nogil:
    int rs_hold(const char *path, size_t free, bint whole, const char **last)
    void rs_let_go(int fd)

# Only the parts of `path` that begin within this many bytes may be links.
cdef size_t linkable(bytes path)
