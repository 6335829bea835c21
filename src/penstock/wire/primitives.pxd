cimport cython
from libc.stdint cimport int64_t

cdef int64_t _BIT_32
cdef int64_t _BITS_32
cdef int VARINT_BYTES_MAX


cdef class Reader:
    cdef public object data
    cdef const unsigned char[::1] octets
    cdef public Py_ssize_t pos
    cdef public Py_ssize_t end
    cdef public Py_ssize_t items_left

    @cython.locals(pos=Py_ssize_t)
    cpdef Py_ssize_t take(self, Py_ssize_t size) except -1
    cpdef tuple fixed(self, layout)
    @cython.locals(value=int)
    cpdef int int8(self) except? -77
    cpdef bint boolean(self) except? -1
    @cython.locals(pos=Py_ssize_t, value=int)
    cpdef int int16(self) except? -77
    @cython.locals(pos=Py_ssize_t)
    cpdef int uint16(self) except? -1
    @cython.locals(pos=Py_ssize_t, high=int64_t, value=int64_t)
    cpdef int64_t int32(self) except? -77
    @cython.locals(high=int64_t, low=int64_t)
    cpdef int64_t int64(self) except? -77
    @cython.locals(pos=Py_ssize_t, value=int64_t, byte=int64_t, place=int)
    cpdef int64_t varint(self) except? -1
    cpdef bint present(self) except? -1
    cpdef int64_t string_length(self) except? -77
    cpdef int64_t bytes_length(self) except? -77
    cpdef int64_t array_length(self) except? -77
    @cython.locals(size=int64_t, start=Py_ssize_t)
    cpdef string_nullable(self)
    cpdef string(self)
    @cython.locals(size=int64_t, start=Py_ssize_t)
    cpdef view_nullable(self)
    @cython.locals(count=int64_t)
    cpdef int64_t count(self, Py_ssize_t size_min, bint nullable) except? -77
    @cython.locals(count=int64_t)
    cpdef int64_t items(self, Py_ssize_t size_min, bint nullable) except? -77
    @cython.locals(start=Py_ssize_t)
    cpdef uuid(self)
    cpdef skip_tags(self)
    cpdef finish(self)


cdef class FlexibleReader(Reader):
    pass


cdef class Writer(bytearray):
    cpdef int8(self, int value)
    cpdef boolean(self, value)
    cpdef varint(self, int64_t value)
    cpdef string_length(self, Py_ssize_t size)
    cpdef length(self, Py_ssize_t size)
    cpdef tags(self, list tagged=*)
    cpdef string(self, str value)
    cpdef string_nullable(self, str value)
    cpdef raw(self, value)
    cpdef raw_nullable(self, value)
    cpdef uuid(self, value)
    cpdef integers(self, code, items)
    cpdef array(self, write, items, version)


cdef class FlexibleWriter(Writer):
    pass


cdef class SlicingWriter(Writer):
    cdef public list holes


cdef class SlicingFlexibleWriter(FlexibleWriter):
    cdef public list holes
