cimport cython

from penstock.wire cimport bytes_copy, float_text

cdef int _STRING
cdef int _BOOLEAN
cdef int _INTEGER
cdef int _DOUBLE
cdef int _DECIMAL
cdef int _MOMENT
cdef int _LOCAL_MOMENT
cdef int _DATE
cdef int _LIST
cdef int _STRUCT
cdef int _NULL
cdef int _TAKEN
cdef int _REFUSED
cdef int _DEPTH_MAX
cdef int _DIGITS_MAX
cdef int _DECIMAL_DIGITS_MAX
cdef unsigned long long _INT64_MAX
cdef int _EXACT_DIGITS_MAX
cdef int _EXACT_POWER_MAX
cdef int _SCALED_POWER_MAX
cdef int _EXPONENT_MAX
cdef int _NUMBER_BYTES_MAX
cdef int _FRACTION_DIGITS_MAX
cdef int _SECONDS_DIGITS_MAX
cdef long long _DAYS_NONE
cdef long long _ZONE_NONE
cdef unsigned long long _BIT
cdef long long _SECOND_US
cdef long long _DAY_SECONDS
cdef long long _DAYS_TO_1970
cdef int _CLOSED
cdef int _ANOTHER
cdef int _MALFORMED


@cython.final
cdef class JsonColumn:
    cdef int kind
    cdef readonly bint is_nullable
    cdef readonly long long low
    cdef readonly long long high
    cdef readonly double bound
    cdef readonly int scale
    cdef readonly list children
    cdef const unsigned char[::1] names
    cdef long long[::1] name_ends
    cdef unsigned long long field_bits
    cdef unsigned char[::1] valid
    cdef long long[::1] integers
    cdef double[::1] doubles
    cdef int[::1] ends
    cdef unsigned char[::1] text
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t text_size

    @cython.locals(kind=int, count=Py_ssize_t, index=Py_ssize_t, child=JsonColumn)
    cdef int add_null(self) except -1

    @cython.locals(kind=int, index=Py_ssize_t, child=JsonColumn)
    cdef int cut(self, Py_ssize_t count) except -1


@cython.final
cdef class JsonScanner:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t pos
    cdef Py_ssize_t end
    cdef long long[::1] before_month
    cdef double[::1] powers
    cdef unsigned long long[::1] integer_powers
    cdef const unsigned char[::1] plain
    cdef const unsigned char[::1] space
    cdef const unsigned char[::1] escaped
    cdef const unsigned char[::1] null
    cdef const unsigned char[::1] true
    cdef const unsigned char[::1] false
    cdef unsigned long long mantissa
    cdef Py_ssize_t significant
    cdef Py_ssize_t fraction
    cdef long long exponent
    cdef long long found
    cdef bint is_integer
    cdef bint is_negative

    @cython.locals(row=Py_ssize_t, count=Py_ssize_t)
    cpdef int scan(self, JsonColumn root, const unsigned char[::1] data, const int[::1] ends,
                   const unsigned char[::1] valid, unsigned char[::1] outcomes) except -1

    cdef bint read_row(self, JsonColumn root, Py_ssize_t begin, Py_ssize_t end) except -1

    @cython.locals(pos=Py_ssize_t)
    cdef int skip_space(self) noexcept

    @cython.locals(seen=cython.ulonglong, bit=cython.ulonglong, guess=Py_ssize_t, more=int, begin=Py_ssize_t,
                   size=Py_ssize_t, index=Py_ssize_t, child=JsonColumn)
    cdef bint read_struct(self, JsonColumn column) except -1

    @cython.locals(fields=Py_ssize_t, step=Py_ssize_t, index=Py_ssize_t, begin=Py_ssize_t, at=Py_ssize_t)
    cdef Py_ssize_t find_field(self, JsonColumn column, Py_ssize_t pos, Py_ssize_t size, Py_ssize_t guess) noexcept

    @cython.locals(more=int, child=JsonColumn)
    cdef bint read_list(self, JsonColumn column) except -1

    cdef int after_bracket(self, unsigned char closing) noexcept

    @cython.locals(byte=cython.uchar)
    cdef int after_element(self, unsigned char closing) noexcept

    @cython.locals(begin=Py_ssize_t, end=Py_ssize_t)
    cdef Py_ssize_t read_name(self) noexcept

    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t plain_end(self, Py_ssize_t pos) noexcept

    @cython.locals(byte=cython.uchar, kind=int, is_taken=bint)
    cdef bint read_value(self, JsonColumn column) except -1

    @cython.locals(size=Py_ssize_t, at=Py_ssize_t)
    cdef bint literal(self, const unsigned char[::1] text) noexcept

    cdef bint read_boolean(self, unsigned char byte) noexcept

    @cython.locals(begin=Py_ssize_t, end=Py_ssize_t, code=cython.long)
    cdef bint read_string(self, JsonColumn column) noexcept

    @cython.locals(byte=cython.uchar, code=cython.long, low=cython.long)
    cdef long escape(self) noexcept

    @cython.locals(byte=cython.uchar, code=cython.long, digit=cython.long, at=Py_ssize_t)
    cdef long hex4(self) noexcept

    @cython.locals(pos=Py_ssize_t, end=Py_ssize_t, begin=Py_ssize_t, mantissa=cython.ulonglong,
                   significant=Py_ssize_t, is_small=bint, exponent=cython.longlong)
    cdef bint scan_number(self) noexcept

    @cython.locals(begin=Py_ssize_t, power=cython.longlong, found=cython.double)
    cdef bint read_double(self, JsonColumn column) except -1

    cdef bint read_integer(self) noexcept

    cdef bint read_seconds(self) noexcept

    @cython.locals(mantissa=cython.ulonglong, unit=cython.ulonglong, rest=cython.ulonglong, missing=Py_ssize_t,
                   surplus=Py_ssize_t)
    cdef bint read_decimal(self, Py_ssize_t scale, bint is_quoted) noexcept

    @cython.locals(begin=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t, days=cython.longlong, seconds=cython.longlong,
                   micros=cython.longlong, offset=cython.longlong, hour=int, minute=int, second=int, digits=int)
    cdef bint read_time(self, int kind) noexcept

    @cython.locals(century=int, rest=int, month=int, day=int, year=int, is_leap=bint, before=cython.longlong,
                   length=cython.longlong, leap_days=cython.longlong)
    cdef long long days(self, Py_ssize_t at) noexcept

    @cython.locals(tens=int, ones=int)
    cdef int two_digits(self, Py_ssize_t at) noexcept

    @cython.locals(byte=cython.uchar, minutes=int, hours=int, offset=cython.longlong)
    cdef long long zone(self, Py_ssize_t at, Py_ssize_t end) noexcept

    @cython.locals(byte=cython.uchar, more=int)
    cdef bint skip_value(self, int depth) noexcept

    cdef bint skip_name(self) noexcept

    @cython.locals(begin=Py_ssize_t, end=Py_ssize_t)
    cdef bint skip_string(self) noexcept


cdef Py_ssize_t put_utf8(unsigned char[::1] text, Py_ssize_t at, unsigned long code) noexcept
