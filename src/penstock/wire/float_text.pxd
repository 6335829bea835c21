from libc.string cimport memcpy


cdef extern from *:
    """
    #include <float.h>
    #include <stdint.h>
    #include <string.h>

    #if LDBL_MANT_DIG == 64
    static const long double penstock_powers[] = {
        1e0L, 1e1L, 1e2L, 1e3L, 1e4L, 1e5L, 1e6L, 1e7L, 1e8L, 1e9L, 1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L,
        1e17L, 1e18L, 1e19L, 1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};

    /* Mantissa and power are exact with 64 bits, so the product or quotient is off by at most half of its last bit.
       Rounding it to 53 bits is then correct unless the 11 bits that go are about half of what they can be. */
    static double penstock_scaled(unsigned long long mantissa, long long power) {
        long double found = power >= 0 ? mantissa * penstock_powers[power] : mantissa / penstock_powers[-power];
        uint64_t bits;
        memcpy(&bits, &found, sizeof bits);
        bits &= 0x7FF;
        return bits < 0x3FF || bits > 0x401 ? (double)found : -1.0;
    }
    #else
    static double penstock_scaled(unsigned long long mantissa, long long power) { return -1.0; }
    #endif
    """
    double penstock_scaled(unsigned long long mantissa, long long power) noexcept


cdef extern from "Python.h":
    double PyOS_string_to_double(const char *text, char **end, void *overflow_exception) except? -1.0


cdef inline double scaled(unsigned long long mantissa, long long power) noexcept:
    return penstock_scaled(mantissa, power)


cdef inline double parsed(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t size) except? -1.0:
    cdef char[64] text
    memcpy(text, &data[pos], size)
    text[size] = 0
    return PyOS_string_to_double(text, NULL, NULL)
