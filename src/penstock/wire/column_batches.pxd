cimport cython
from libc.stdint cimport int64_t

cdef Py_ssize_t STICKY_ROWS
cdef Py_ssize_t _SLOT_BYTES_FIRST
cdef Py_ssize_t _VARINTS_BYTES_MAX
cdef unsigned long long _BITS_32
cdef unsigned long long _BITS_64
cdef unsigned long long _MURMUR_SEED
cdef unsigned long long _MURMUR_FACTOR
cdef unsigned long long _HASH_FACTOR


@cython.final
cdef class BytesColumn:
    cdef const int[::1] ends
    cdef const unsigned char[::1] data
    cdef const unsigned char[::1] valid
    cdef bint is_null

    cdef Py_ssize_t size(self, Py_ssize_t row) noexcept


@cython.final
cdef class HeaderColumns:
    cdef const int[::1] ends
    cdef BytesColumn names
    cdef BytesColumn contents


@cython.locals(hashed=cython.ulonglong, word=cython.ulonglong, at=Py_ssize_t, left=Py_ssize_t, _=Py_ssize_t)
cpdef unsigned long long murmur2(const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t size) noexcept


@cython.locals(hashed=cython.ulonglong, word=cython.ulonglong, at=Py_ssize_t, left=Py_ssize_t, index=Py_ssize_t,
               _=Py_ssize_t, b0=cython.ulonglong, b1=cython.ulonglong, b2=cython.ulonglong, b3=cython.ulonglong,
               b4=cython.ulonglong, b5=cython.ulonglong, b6=cython.ulonglong, b7=cython.ulonglong)
cpdef unsigned long long hash64(const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t size,
                                unsigned long long seed) noexcept


@cython.locals(rows=Py_ssize_t, row=Py_ssize_t, size=Py_ssize_t, hashed=cython.ulonglong, total=cython.ulonglong)
cpdef sum_of_hashes(BytesColumn keys, BytesColumn values, const int[::1] topics, const unsigned long long[::1] seeds)


@cython.locals(rows=Py_ssize_t, row=Py_ssize_t, taken=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t choose_partitions(int[::1] chosen, BytesColumn keys, const int[::1] topics, const int[::1] counts,
                                   const int[::1] firsts, Py_ssize_t turn) except -1


@cython.final
cdef class RecordsOfPartition:
    cdef unsigned char[::1] data
    cdef public Py_ssize_t size
    cdef public Py_ssize_t count
    cdef public int64_t base_time
    cdef public int64_t time_max

    cpdef bytes take(self)
    cdef int reserve(self, Py_ssize_t more) except -1
    @cython.locals(delta=int64_t, key_size=Py_ssize_t, value_size=Py_ssize_t, length=Py_ssize_t, at=Py_ssize_t)
    cdef int add(self, Py_ssize_t row, int64_t time_ms, BytesColumn keys, BytesColumn values,
                 HeaderColumns headers) except -1


@cython.locals(zigzag=cython.ulonglong, size=Py_ssize_t)
cdef Py_ssize_t varint_bytes(int64_t value) noexcept

@cython.locals(zigzag=cython.ulonglong)
cdef Py_ssize_t put_varint(unsigned char[::1] out, Py_ssize_t at, int64_t value) noexcept

@cython.locals(start=Py_ssize_t, index=Py_ssize_t)
cdef Py_ssize_t put_bytes(unsigned char[::1] out, Py_ssize_t at, BytesColumn column, Py_ssize_t row,
                          Py_ssize_t size) noexcept

@cython.locals(first=Py_ssize_t, last=Py_ssize_t, total=Py_ssize_t, each=Py_ssize_t, size=Py_ssize_t)
cdef Py_ssize_t headers_bytes(HeaderColumns headers, Py_ssize_t row) noexcept

@cython.locals(first=Py_ssize_t, last=Py_ssize_t, each=Py_ssize_t)
cdef Py_ssize_t put_headers(unsigned char[::1] out, Py_ssize_t at, HeaderColumns headers, Py_ssize_t row) noexcept


@cython.locals(rows=Py_ssize_t, row=Py_ssize_t, records=RecordsOfPartition)
cpdef Py_ssize_t add_rows(list partitions, int[::1] chosen, const int64_t[::1] times, BytesColumn keys,
                          BytesColumn values, HeaderColumns headers, Py_ssize_t first, Py_ssize_t bytes_max) except -1
