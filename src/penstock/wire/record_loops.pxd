cimport cython
from libc.stdint cimport int64_t

cdef Py_ssize_t _RECORD_BYTES_MIN
cdef Py_ssize_t _HEADER_COUNT_MAX
cdef Py_ssize_t _USUAL_HEAD_BYTES
cdef Py_ssize_t _USUAL_TAIL_BYTES
cdef Py_ssize_t _RECORD_HEAD_BYTES
cdef unsigned int _NULL
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


@cython.final
cdef class Walk:
    cdef Cursor cursor
    cdef Py_ssize_t index
    cdef bint keyed
    cdef bint consecutive
    cdef long long delta_min
    cdef long long delta_max

    @cython.locals(cursor=Cursor, record_end=Py_ssize_t)
    cdef int one(self) except -1

    cdef int note(self, Py_ssize_t index, long long delta) except -1

    @cython.locals(pos=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t, record_end=Py_ssize_t, index=Py_ssize_t,
                   count=Py_ssize_t, byte=cython.uint, size=cython.uint, delta=cython.uint, number=cython.uint,
                   key=cython.uint)
    cdef int usual(self, Py_ssize_t count) except -1


@cython.locals(walk=Walk)
cpdef tuple check(data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count)


@cython.final
cdef class Rows:
    cdef long long[::1] starts
    cdef long long[::1] ends
    cdef long long[::1] times
    cdef long long[::1] offsets
    cdef long long[::1] key_at
    cdef long long[::1] key_sizes
    cdef long long[::1] value_at
    cdef long long[::1] value_sizes
    cdef long long[::1] headers_at
    cdef long long[::1] header_counts

    @cython.locals(pos=Py_ssize_t)
    cpdef fill(self, data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, Py_ssize_t at, long long base_time,
               long long base_offset)

    @cython.locals(cursor=Cursor, row=Py_ssize_t, size=Py_ssize_t, record_end=Py_ssize_t)
    cpdef Py_ssize_t fill_some(self, data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, Py_ssize_t at,
                               long long base_time, long long base_offset) except -1


@cython.locals(rows=Rows)
cpdef fill(data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, Py_ssize_t at, columns)


@cython.final
cdef class TimeSearch:
    cdef Py_ssize_t _left
    cdef long long _skip
    cdef long long _time_min
    cdef long long _offset_min
    cdef public bint found
    cdef public long long time_delta
    cdef public long long offset_delta

    @cython.locals(cursor=Cursor, step=cython.longlong)
    cpdef Py_ssize_t feed(self, data, bint is_last) except -1

    @cython.locals(size=cython.longlong, start=Py_ssize_t, time_delta=cython.longlong, offset_delta=cython.longlong)
    cdef int one(self, Cursor cursor) except -1


@cython.locals(cursor=Cursor, size=Py_ssize_t)
cpdef list read_headers(data, Py_ssize_t start, Py_ssize_t end)


@cython.locals(cursor=Cursor, name_size=Py_ssize_t, record_end=Py_ssize_t, delta=Py_ssize_t, headers=Py_ssize_t,
               at=Py_ssize_t, found=Py_ssize_t, size=Py_ssize_t, matches=bint)
cpdef list header_values(data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, bytes name)


@cython.final
cdef class Output:
    cdef public bytearray body
    cdef public bytearray scratch

    @cython.locals(zigzag=cython.ulonglong)
    cpdef varint(self, bytearray out, long long value)
    cpdef blob(self, bytearray out, value)
    @cython.locals(out=bytearray)
    cpdef add(self, long long time_delta, long long offset_delta, key, value, headers)
