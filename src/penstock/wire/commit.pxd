cimport cython
from libc.stdint cimport int64_t

from penstock.wire.primitives cimport FlexibleReader, FlexibleWriter, Reader, Writer


cdef class CommitRequest:
    cdef public str group
    cdef public object generation
    cdef public str member_id
    cdef public object retention_ms
    cdef public object group_instance_id
    cdef public list topics


@cython.locals(reader=Reader)
cpdef CommitRequest decode_commit(data, Py_ssize_t offset, int version)


@cython.locals(generation=int64_t, retention_ms=int64_t, topics=list, partitions=list, index=int64_t,
               committed=int64_t, epoch=int64_t)
cdef CommitRequest _read_request(Reader reader, int version)


@cython.locals(flexible=bint, out=Writer)
cpdef bytes encode_commit_response(list topics, int version, throttle_ms)
