cimport cython

from penstock.wire cimport bytes_copy
from penstock.wire.record_loops cimport Cursor


cdef long long MICROS


@cython.final
cdef class Blobs:
    cdef int[::1] ends
    cdef unsigned char[::1] data
    cdef unsigned char[::1] valid
    cdef readonly Py_ssize_t room
    cdef readonly Py_ssize_t count_max
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t nulls

    cdef int put(self, const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t size) except -1


@cython.final
cdef class Headers:
    cdef int[::1] ends
    cdef unsigned char[::1] valid
    cdef readonly Blobs names
    cdef readonly Blobs values
    cdef readonly Py_ssize_t room
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t nulls

    @cython.locals(names=Py_ssize_t, values=Py_ssize_t)
    cdef Py_ssize_t left(self)

    @cython.locals(count=Py_ssize_t, size=Py_ssize_t, _=Py_ssize_t)
    cdef int put(self, Cursor cursor, Py_ssize_t row) except -1


@cython.final
cdef class BlobRows:
    cdef long long[::1] offsets
    cdef long long[::1] times_us
    cdef Blobs keys
    cdef Blobs values
    cdef Headers headers
    cdef long long first
    cdef long long last
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t room

    @cython.locals(cursor=Cursor, headers=Headers, index=Py_ssize_t, begin=Py_ssize_t, record_end=Py_ssize_t,
                   size=Py_ssize_t, time_ms=cython.longlong, offset=cython.longlong)
    cpdef tuple fill(self, data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, long long base_offset,
                     long long base_time_ms, long long append_time_ms, bint is_append_time)
