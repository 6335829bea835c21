cimport cython

from penstock.wire.primitives cimport FlexibleReader, FlexibleWriter, Reader, Writer


cdef class FetchPartition:
    cdef public object index
    cdef public object fetch_offset
    cdef public object bytes_max
    cdef public object current_leader_epoch
    cdef public object last_fetched_epoch
    cdef public object log_start_offset
    cdef public object replica_directory_id
    cdef public object high_watermark
    cdef public object held_end


cdef class FetchRequest:
    cdef public object replica_id
    cdef public object max_wait_ms
    cdef public object bytes_min
    cdef public object bytes_max
    cdef public object isolation_level
    cdef public object session_id
    cdef public object session_epoch
    cdef public object topics
    cdef public object forgotten
    cdef public object rack_id
    cdef public object cluster_id
    cdef public object replica_epoch


cdef class FetchedPartition:
    cdef public object index
    cdef public object error_code
    cdef public object high_watermark
    cdef public object last_stable_offset
    cdef public object log_start_offset
    cdef public object records
    cdef public object aborted
    cdef public object preferred_read_replica
    cdef public object diverging_epoch
    cdef public object current_leader
    cdef public object removals


@cython.locals(reader=Reader)
cpdef FetchRequest decode_fetch(data, Py_ssize_t offset, int version)

@cython.locals(topics=list, partitions=list, forgotten=list)
cdef FetchRequest _read_request(Reader reader, int version)

cdef tuple _read_topic(Reader reader, int version)

cdef FetchPartition _read_partition(Reader reader, int version)


@cython.locals(parts=list, total=Py_ssize_t, out=Writer)
cpdef tuple encode_fetch_response(topics, int version, throttle_ms, error_code=*, session_id=*, node_endpoints=*)

cdef _write_topic(Writer out, name, topic_id, Py_ssize_t count, int version)

@cython.locals(flexible=bint, total=Py_ssize_t, size=Py_ssize_t)
cdef Py_ssize_t _write_partitions(Writer out, list parts, partitions, int version) except -1

cdef _write_partition(Writer out, FetchedPartition partition, int version)

cdef _write_partition_tags(Writer out, FetchedPartition partition)
