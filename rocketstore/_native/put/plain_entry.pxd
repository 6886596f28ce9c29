# How a call comes to `Writer.put`, and past the arguments that it does not give.

cdef extern from *:
    """
    /* An argument more costs each put some 25 instructions, also one that does not give it. So `put` is reached
     * through rs_writer_put: with one body and no names but those of _put_plain it calls that, else the whole. */
    #define RS_PLAIN_NAMES 8
    typedef PyObject *(*rs_method)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
    static rs_method rs_put_plain, rs_put_whole;
    static PyObject *rs_plain_names[RS_PLAIN_NAMES];
    static PyObject *rs_plain_seen; /* the names of the call before: a place in a program gives the same tuple again */

    /* Not part of rs_writer_put, which then keeps no register for it. */
    static __attribute__((noinline)) PyObject *rs_put_named(PyObject *self, PyObject *const *args,
                                                            Py_ssize_t count, PyObject *names)
    {
        for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
            int known = 0;
            while (known < RS_PLAIN_NAMES && rs_plain_names[known] != PyTuple_GET_ITEM(names, i))
                known++;
            if (known == RS_PLAIN_NAMES)
                return rs_put_whole(self, args, count, names);
        }
        if (count != 1)
            return rs_put_whole(self, args, count, names);
        Py_INCREF(names);
        Py_XSETREF(rs_plain_seen, names);
        return rs_put_plain(self, args, count, names);
    }

    static PyObject *rs_writer_put(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
    {
        if (count == 1 && (names == NULL || names == rs_plain_seen))
            return rs_put_plain(self, args, count, names);
        return rs_put_named(self, args, count, names);
    }

    static void rs_put_install(PyObject *whole, PyObject *plain, PyObject *names)
    {
        PyMethodDef *to = ((PyCFunctionObject *)whole)->m_ml, *from = ((PyCFunctionObject *)plain)->m_ml;
        if (to->ml_flags != (METH_FASTCALL | METH_KEYWORDS) || from->ml_flags != to->ml_flags)
            return; /* `put` itself does what it would have done, and takes longer */
        for (Py_ssize_t i = 0; i < RS_PLAIN_NAMES; i++) { /* interned, and kept as long as the process lives */
            rs_plain_names[i] = Py_NewRef(PyTuple_GET_ITEM(names, i));
            PyUnicode_InternInPlace(&rs_plain_names[i]);
        }
        rs_put_plain = (rs_method)(void (*)(void))from->ml_meth;
        rs_put_whole = (rs_method)(void (*)(void))to->ml_meth;
        to->ml_meth = (PyCFunction)(void (*)(void))rs_writer_put;
    }
    """
    void rs_put_install(object whole, object plain, tuple names)
