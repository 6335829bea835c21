cimport cython
from libc.stdint cimport int64_t

from penstock.wire.primitives cimport FlexibleReader, FlexibleWriter, Reader, Writer


cdef class ProduceRequest:
    cdef public object transactional_id
    cdef public int acks
    cdef public int timeout_ms
    cdef public list topics


cdef class ProducedPartition:
    cdef public object index
    cdef public object error_code
    cdef public object base_offset
    cdef public object log_append_time_ms
    cdef public object log_start_offset
    cdef public object record_errors
    cdef public object error_message
    cdef public object current_leader


@cython.locals(reader=Reader)
cpdef ProduceRequest decode_produce(data, Py_ssize_t offset, int version)


@cython.locals(acks=int, timeout_ms=int, topics=list, partitions=list, index=int64_t, size=int64_t, start=Py_ssize_t)
cdef ProduceRequest _read_request(Reader reader, view, int version)


@cython.locals(out=FlexibleWriter, fine=bint)
cpdef bytes encode_produce_response(topics, int version, throttle_ms, node_endpoints=*)

@cython.locals(out=Writer)
cdef bytes _encode_legacy(topics, int version, throttle_ms)

cdef _write_errors(Writer out, ProducedPartition result)

@cython.locals(body=FlexibleWriter)
cdef _write_trouble(FlexibleWriter out, ProducedPartition result, int version)
