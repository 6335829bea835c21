cimport cython


cdef class RequestHeader:
    cdef public object api_key
    cdef public object api_version
    cdef public object correlation_id
    cdef public object client_id
    cdef public Py_ssize_t body_offset


cdef Py_ssize_t _HEAD_BYTES


@cython.locals(size=Py_ssize_t, pos=Py_ssize_t)
cpdef RequestHeader decode_request_header(data)
