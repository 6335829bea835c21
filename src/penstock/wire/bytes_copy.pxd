from libc.string cimport memcpy


cdef inline void copied(unsigned char[::1] into, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t pos,
                        Py_ssize_t size) noexcept:
    if size > 0:
        memcpy(&into[at], &data[pos], size)
