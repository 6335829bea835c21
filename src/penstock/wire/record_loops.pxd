cimport cython
from libc.stdint cimport int64_t

cdef Py_ssize_t _RECORD_BYTES_MIN
cdef Py_ssize_t _HEADER_COUNT_MAX
cdef unsigned long long _BITS_32
cdef unsigned long long _BITS_64


@cython.final
cdef class Cursor:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t pos
    cdef Py_ssize_t end

    @cython.locals(pos=Py_ssize_t, end=Py_ssize_t, value=cython.ulonglong, shift=int, byte=cython.ulonglong)
    cdef Py_ssize_t varint(self) except? -1000000007

    @cython.locals(pos=Py_ssize_t, end=Py_ssize_t, value=cython.ulonglong, shift=int, byte=cython.ulonglong)
    cdef int64_t varlong(self) except? -1000000007

    @cython.locals(size=cython.longlong)
    cdef Py_ssize_t span(self) except -2

    @cython.locals(size=cython.longlong)
    cdef Py_ssize_t record_end(self) except -2

    @cython.locals(count=cython.longlong, _=cython.longlong)
    cdef Py_ssize_t skip_headers(self) except -2


@cython.locals(cursor=Cursor, keyed=bint, consecutive=bint, delta=cython.longlong, delta_min=cython.longlong,
               delta_max=cython.longlong, index=Py_ssize_t, record_end=Py_ssize_t)
cpdef tuple check(data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count)


@cython.locals(cursor=Cursor, row=Py_ssize_t, size=Py_ssize_t, record_end=Py_ssize_t,
               starts=cython.longlong[::1], ends=cython.longlong[::1], times=cython.longlong[::1],
               offsets=cython.longlong[::1], key_at=cython.longlong[::1], key_size=cython.longlong[::1],
               value_at=cython.longlong[::1], value_size=cython.longlong[::1],
               headers_at=cython.longlong[::1], headers=cython.longlong[::1])
cpdef fill(data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, Py_ssize_t at, columns)


@cython.locals(row=Py_ssize_t)
cpdef shift(long long[::1] times, long long[::1] offsets, Py_ssize_t at, Py_ssize_t count, long long base_time, long long base_offset)


@cython.locals(cursor=Cursor, size=Py_ssize_t)
cpdef list read_headers(data, Py_ssize_t start, Py_ssize_t end)


@cython.final
cdef class Output:
    cdef public bytearray body
    cdef public bytearray scratch

    @cython.locals(zigzag=cython.ulonglong)
    cpdef varint(self, bytearray out, long long value)
    cpdef blob(self, bytearray out, value)
    @cython.locals(out=bytearray)
    cpdef add(self, long long time_delta, long long offset_delta, key, value, headers)
