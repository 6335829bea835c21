# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Scans JSON objects into columns: one pass over the bytes, no object for each value.

The scanner accepts a row only if it is unambiguous: well-formed JSON, no duplicate field, every value of its column's
type. It rejects any other row as a whole and leaves nothing of it behind; the caller parses those rows in another way.
So it may reject rare forms, and must never accept a wrong one.

The same source runs as Python and, with the types of ``json_columns.pxd``, as C. Bounds are checked here and not left
to indexing. The bytes must be UTF-8.
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence, Sequence
from itertools import accumulate

from penstock.wire import bytes_copy, float_text
from penstock.wire.primitives import Buffer

_STRING = 0
_BOOLEAN = 1
_INTEGER = 2
_DOUBLE = 3
_DECIMAL = 4
_MOMENT = 5
_LOCAL_MOMENT = 6
_DATE = 7
_LIST = 8
_STRUCT = 9
KINDS = {
    "string": _STRING,
    "boolean": _BOOLEAN,
    "integer": _INTEGER,
    "double": _DOUBLE,
    "decimal": _DECIMAL,
    "timestamp": _MOMENT,
    "timestamp_ntz": _LOCAL_MOMENT,
    "date": _DATE,
    "list": _LIST,
    "struct": _STRUCT,
}
"""What a column can hold. A decimal is its unscaled integer, rounded half up; a timestamp is microseconds since 1970,
from text or from seconds; a date is days."""

FIELDS_MAX = 63
"""Fields of one struct: each has a bit for whether it was seen."""
_DEPTH_MAX = 64
"""Nesting of values outside the schema, which bounds the depth of the others."""
_DIGITS_MAX = 19
"""Digits that fit 64 bits unsigned."""
_DECIMAL_DIGITS_MAX = 18
"""Digits that fit 64 bits signed, whatever they are."""
_INT64_MAX = (1 << 63) - 1
_EXACT_DIGITS_MAX = 15
"""Digits of integers that a double represents exactly."""
_EXACT_POWER_MAX = 22
"""A double holds every power of ten up to this one, so that one division or product is rounded correctly."""
_SCALED_POWER_MAX = float_text.POWER_MAX
_EXPONENT_MAX = 9_999
_NUMBER_BYTES_MAX = 63
_FRACTION_DIGITS_MAX = 9
_SECONDS_DIGITS_MAX = 12
"""As many seconds reach beyond the year 9999, and as microseconds fit 64 bits."""
_DAYS_NONE = -1_000_000
_ZONE_NONE = 1_000_000
"""A value that is no date and no zone offset."""
_BIT = 1
_SECOND_US = 1_000_000
_DAY_SECONDS = 86_400
_DAYS_TO_1970 = 719_528
"""From the first day of the year 0."""
_NULL = 0
_TAKEN = 1
_REFUSED = 2
TAKEN = _TAKEN
REFUSED = _REFUSED
"""Outcomes of rows, for Python to see."""
_CLOSED = 0
_ANOTHER = 1
_MALFORMED = 2

_NO_INTEGERS = array("q")
_NO_DOUBLES = array("d")
_NO_ENDS = array("i")
_NO_TEXT = bytearray()
_DAYS_BEFORE_MONTH = array("q", (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365))
_POWERS = array("d", (float(10**power) for power in range(_EXACT_POWER_MAX + 1)))
_INTEGER_POWERS = array("Q", (10**power for power in range(_DIGITS_MAX + 1)))
_PLAIN = bytes(byte >= 0x20 and byte not in b'"\\' for byte in range(256))
"""Bytes of a string without a special meaning."""
_SPACE = bytes(byte in b" \t\n\r" for byte in range(256))
_ESCAPES = {ord(of): ord(char) for of, char in zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True)}
_ESCAPED = bytes(_ESCAPES.get(byte, 0) for byte in range(256))
"""The character for the byte after a backslash; 0 for none."""


class JsonColumn:
    """The column of one node of a schema.

    Each entry has a byte in ``valid``. Strings and lists have their ends, which begin with 0; strings their bytes in
    ``text``, doubles theirs in ``doubles``; every other value is an integer. Before each scan the caller gives memory
    that is large enough: an entry for each row, or, below a list, for every second byte of the rows.
    """

    __slots__ = (
        "bound",
        "children",
        "count",
        "doubles",
        "ends",
        "field_bits",
        "high",
        "integers",
        "is_nullable",
        "kind",
        "low",
        "name_ends",
        "names",
        "scale",
        "text",
        "text_size",
        "valid",
    )

    def __init__(
        self,
        kind: str,
        *,
        is_nullable: bool,
        low: int = 0,
        high: int = 0,
        bound: float = 0.0,
        scale: int = 0,
        fields: Sequence[tuple[bytes, JsonColumn]] = (),
        element: JsonColumn | None = None,
    ) -> None:
        assert len(fields) <= FIELDS_MAX, f"{len(fields)} fields"
        self.kind = KINDS[kind]
        self.is_nullable = is_nullable
        self.low = low
        self.high = high
        self.bound = bound
        self.scale = scale
        self.children = [column for _, column in fields] if element is None else [element]
        self.names = b"".join(name for name, _ in fields) or b" "
        self.name_ends = array("q", accumulate((len(name) for name, _ in fields), initial=0))
        self.field_bits = (1 << len(fields)) - 1
        self.count = 0
        self.text_size: int = 0

    def use(
        self,
        *,
        valid: MutableSequence[int],
        integers: MutableSequence[int] = _NO_INTEGERS,
        doubles: MutableSequence[float] = _NO_DOUBLES,
        ends: MutableSequence[int] = _NO_ENDS,
        text: bytearray | memoryview = _NO_TEXT,
    ) -> None:
        """Reset to empty, with this memory."""
        self.valid = valid
        self.integers = integers
        self.doubles = doubles
        self.ends = ends
        self.text = text
        self.count = 0
        self.text_size = 0
        if self.kind in (_LIST, _STRING):
            ends[0] = 0

    def add_null(self) -> None:
        kind = self.kind
        count = self.count
        self.valid[count] = 0
        if kind == _STRUCT:
            for index in range(len(self.children)):
                child = self.children[index]
                child.add_null()
        elif kind in (_LIST, _STRING):
            self.ends[count + 1] = self.ends[count]
        elif kind == _DOUBLE:
            self.doubles[count] = 0.0
        else:
            self.integers[count] = 0
        self.count = count + 1

    def cut(self, count: int) -> None:
        """Truncate to the first entries."""
        kind = self.kind
        self.count = count
        if kind == _STRING:
            self.text_size = self.ends[count]
        elif kind == _LIST:
            child = self.children[0]
            child.cut(self.ends[count])
        elif kind == _STRUCT:
            for index in range(len(self.children)):
                child = self.children[index]
                child.cut(count)


class JsonScanner:
    """Scans rows into a tree of columns."""

    __slots__ = (
        "before_month",
        "data",
        "end",
        "escaped",
        "exponent",
        "false",
        "found",
        "fraction",
        "integer_powers",
        "is_integer",
        "is_negative",
        "mantissa",
        "null",
        "plain",
        "pos",
        "powers",
        "significant",
        "space",
        "true",
    )

    def __init__(self) -> None:
        self.before_month = _DAYS_BEFORE_MONTH
        self.powers = _POWERS
        self.integer_powers = _INTEGER_POWERS
        self.plain = _PLAIN
        self.space = _SPACE
        self.escaped = _ESCAPED
        self.found = 0
        self.null = b"null"
        self.true = b"true"
        self.false = b"false"

    def scan(
        self, root: JsonColumn, data: Buffer, ends: Sequence[int], valid: Buffer | None, outcomes: MutableSequence[int]
    ) -> None:
        """Scan the rows of a column of byte strings; ``outcomes`` has an element for each row.

        ``valid`` has a bit for each row, or is None if no row is null. The root must be a struct.
        """
        self.data = data
        for row in range(len(ends) - 1):
            if valid is not None and not valid[row >> 3] >> (row & 7) & 1:
                outcomes[row] = _NULL
                continue
            count = root.count
            if self.read_row(root, ends[row], ends[row + 1]):
                outcomes[row] = _TAKEN
            else:
                root.cut(count)
                outcomes[row] = _REFUSED

    def read_row(self, root: JsonColumn, begin: int, end: int) -> bool:
        self.pos = begin
        self.end = end
        self.skip_space()
        if self.pos >= end or self.data[self.pos] != 0x7B or not self.read_struct(root):
            return False
        self.skip_space()
        return self.pos == end

    def skip_space(self) -> None:
        pos = self.pos
        while pos < self.end and self.space[self.data[pos]]:
            pos += 1
        self.pos = pos

    def read_struct(self, column: JsonColumn) -> bool:
        """A struct, at its opening brace."""
        seen = 0
        guess = 0
        self.pos += 1
        more = self.after_bracket(0x7D)
        while more == _ANOTHER:
            begin = self.pos + 1
            size = self.read_name()
            if size < 0:
                return False
            index = self.find_field(column, begin, size, guess)
            if index < 0:
                if not self.skip_value(_DEPTH_MAX):
                    return False
            else:
                bit = _BIT << index
                if seen & bit:
                    return False
                seen |= bit
                guess = index + 1
                child = column.children[index]
                if not self.read_value(child):
                    return False
            more = self.after_element(0x7D)
        if more == _MALFORMED:
            return False
        if seen != column.field_bits:
            for index in range(len(column.children)):
                if not seen >> index & 1:
                    child = column.children[index]
                    if not child.is_nullable:
                        return False
                    child.add_null()
        column.valid[column.count] = 1
        column.count += 1
        return True

    def find_field(self, column: JsonColumn, pos: int, size: int, guess: int) -> int:
        """The index of the field whose name is here, or -1. Fields mostly come in the order of the schema."""
        fields = len(column.children)
        for step in range(fields):
            index = guess + step
            if index >= fields:
                index -= fields
            begin = column.name_ends[index]
            if column.name_ends[index + 1] - begin != size:
                continue
            at = 0
            while at < size and column.names[begin + at] == self.data[pos + at]:
                at += 1
            if at == size:
                return index
        return -1

    def read_list(self, column: JsonColumn) -> bool:
        """A list, at its opening bracket."""
        child = column.children[0]
        self.pos += 1
        more = self.after_bracket(0x5D)
        while more == _ANOTHER:
            if not self.read_value(child):
                return False
            more = self.after_element(0x5D)
        column.valid[column.count] = 1
        column.count += 1
        column.ends[column.count] = child.count
        return more == _CLOSED

    def after_bracket(self, closing: int) -> int:
        """After an opening bracket: whether there is an element."""
        self.skip_space()
        if self.pos < self.end and self.data[self.pos] == closing:
            self.pos += 1
            return _CLOSED
        return _ANOTHER

    def after_element(self, closing: int) -> int:
        """After an element: whether there is another."""
        self.skip_space()
        if self.pos >= self.end:
            return _MALFORMED
        byte = self.data[self.pos]
        self.pos += 1
        if byte == 0x2C:
            self.skip_space()
            return _ANOTHER
        return _CLOSED if byte == closing else _MALFORMED

    def read_name(self) -> int:
        """Skip a name and its colon; returns the size of the name, or -1. Names with escapes are rejected."""
        begin = self.pos + 1
        if self.pos >= self.end or self.data[self.pos] != 0x22:
            return -1
        end = self.plain_end(begin)
        if end >= self.end or self.data[end] != 0x22:
            return -1
        self.pos = end + 1
        self.skip_space()
        if self.pos >= self.end or self.data[self.pos] != 0x3A:
            return -1
        self.pos += 1
        return end - begin

    def plain_end(self, pos: int) -> int:
        """The position of the first byte with a special meaning in a string."""
        end = self.end
        while pos < end and self.plain[self.data[pos]]:
            pos += 1
        return pos

    def read_value(self, column: JsonColumn) -> bool:
        """Append the next value. False if it is not of the column's type; what it appended is then undefined."""
        self.skip_space()
        if self.pos >= self.end:
            return False
        byte = self.data[self.pos]
        kind = column.kind
        if byte == 0x6E:
            if not column.is_nullable or not self.literal(self.null):
                return False
            column.add_null()
            return True
        if kind == _STRING:
            return byte == 0x22 and self.read_string(column)
        if kind == _LIST:
            return byte == 0x5B and self.read_list(column)
        if kind == _STRUCT:
            return byte == 0x7B and self.read_struct(column)
        if kind == _DOUBLE:
            return self.read_double(column)
        if kind == _INTEGER:
            is_taken = self.read_integer()
        elif kind == _BOOLEAN:
            is_taken = self.read_boolean(byte)
        elif kind == _DECIMAL:
            is_taken = self.read_decimal(column.scale, byte == 0x22)
        elif byte == 0x22:
            is_taken = self.read_time(kind)
        else:
            is_taken = kind == _MOMENT and self.read_seconds()
        if not is_taken or self.found < column.low or self.found > column.high:
            return False
        column.valid[column.count] = 1
        column.integers[column.count] = self.found
        column.count += 1
        return True

    def literal(self, text: Buffer) -> bool:
        size = len(text)
        if self.end - self.pos < size:
            return False
        for at in range(size):
            if self.data[self.pos + at] != text[at]:
                return False
        self.pos += size
        return True

    def read_boolean(self, byte: int) -> bool:
        self.found = 1 if byte == 0x74 else 0
        return self.literal(self.true if byte == 0x74 else self.false)

    def read_string(self, column: JsonColumn) -> bool:
        """At the opening quote."""
        begin = self.pos + 1
        while True:
            end = self.plain_end(begin)
            if end >= self.end:
                return False
            if end > begin:
                bytes_copy.copied(column.text, column.text_size, self.data, begin, end - begin)
                column.text_size += end - begin
            self.pos = end + 1
            if self.data[end] == 0x22:
                break
            if self.data[end] != 0x5C:
                return False
            code = self.escape()
            if code < 0:
                return False
            column.text_size += put_utf8(column.text, column.text_size, code)
            begin = self.pos
        column.valid[column.count] = 1
        column.count += 1
        column.ends[column.count] = column.text_size
        return True

    def escape(self) -> int:
        """After a backslash: the escaped character, or -1. A lone surrogate is rejected."""
        if self.pos >= self.end:
            return -1
        byte = self.data[self.pos]
        self.pos += 1
        if byte != 0x75:
            return self.escaped[byte] or -1
        code = self.hex4()
        if code < 0xD800 or code > 0xDFFF:
            return code
        if code > 0xDBFF or self.end - self.pos < 2:
            return -1
        if self.data[self.pos] != 0x5C or self.data[self.pos + 1] != 0x75:
            return -1
        self.pos += 2
        low = self.hex4()
        if low < 0xDC00 or low > 0xDFFF:
            return -1
        return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)

    def hex4(self) -> int:
        if self.end - self.pos < 4:
            return -1
        code = 0
        for at in range(4):
            byte = self.data[self.pos + at]
            if 0x30 <= byte <= 0x39:
                digit = byte - 0x30
            elif 0x61 <= byte | 0x20 <= 0x66:
                digit = (byte | 0x20) - 0x57
            else:
                return -1
            code = code << 4 | digit
        self.pos += 4
        return code

    def scan_number(self) -> bool:
        """Skip a number, and store its parts. False if it is none.

        The mantissa consists of all digits; it is undefined if there are more than 19 after leading zeros.
        """
        pos = self.pos
        end = self.end
        mantissa = 0
        significant = 0
        self.fraction = 0
        self.exponent = 0
        self.is_integer = True
        self.is_negative = pos < end and self.data[pos] == 0x2D
        if self.is_negative:
            pos += 1
        begin = pos
        while pos < end and 0x30 <= self.data[pos] <= 0x39:
            if significant < _DIGITS_MAX:
                mantissa = mantissa * 10 + (self.data[pos] - 0x30)
            if mantissa:
                significant += 1
            pos += 1
        if pos == begin or (pos - begin > 1 and self.data[begin] == 0x30):
            return False
        if pos < end and self.data[pos] == 0x2E:
            self.is_integer = False
            pos += 1
            begin = pos
            while pos < end and 0x30 <= self.data[pos] <= 0x39:
                if significant < _DIGITS_MAX:
                    mantissa = mantissa * 10 + (self.data[pos] - 0x30)
                if mantissa:
                    significant += 1
                pos += 1
            if pos == begin:
                return False
            self.fraction = pos - begin
        if pos < end and (self.data[pos] | 0x20) == 0x65:
            self.is_integer = False
            pos += 1
            is_small = pos < end and self.data[pos] == 0x2D
            if pos < end and (self.data[pos] == 0x2D or self.data[pos] == 0x2B):
                pos += 1
            begin = pos
            exponent = 0
            while pos < end and 0x30 <= self.data[pos] <= 0x39:
                if exponent < _EXPONENT_MAX:
                    exponent = exponent * 10 + (self.data[pos] - 0x30)
                pos += 1
            if pos == begin:
                return False
            self.exponent = -exponent if is_small else exponent
        self.mantissa = mantissa
        self.significant = significant
        self.pos = pos
        return True

    def read_double(self, column: JsonColumn) -> bool:
        begin = self.pos
        if not self.scan_number():
            return False
        power = self.exponent - self.fraction
        if self.is_integer and self.mantissa == 0:
            # The integer -0 is the integer 0.
            found = 0.0
        else:
            found = -1.0
            if self.significant <= _EXACT_DIGITS_MAX and -_EXACT_POWER_MAX <= power <= _EXACT_POWER_MAX:
                found = float(self.mantissa)
                found = found * self.powers[power] if power >= 0 else found / self.powers[-power]
            elif 0 < self.significant <= _DIGITS_MAX and -_SCALED_POWER_MAX <= power <= _SCALED_POWER_MAX:
                found = float_text.scaled(self.mantissa, power)
            if found < 0.0:
                if self.pos - begin > _NUMBER_BYTES_MAX:
                    return False
                found = float_text.parsed(self.data, begin, self.pos - begin)
            elif self.is_negative:
                found = -found
        if found > column.bound or found < -column.bound:
            return False
        column.valid[column.count] = 1
        column.doubles[column.count] = found
        column.count += 1
        return True

    def read_integer(self) -> bool:
        if not self.scan_number() or not self.is_integer or self.significant > _DIGITS_MAX:
            return False
        if self.mantissa > _INT64_MAX:
            return False
        self.found = -self.mantissa if self.is_negative else self.mantissa
        return True

    def read_seconds(self) -> bool:
        if not self.read_integer() or self.significant > _SECONDS_DIGITS_MAX:
            return False
        self.found = self.found * _SECOND_US
        return True

    def read_decimal(self, scale: int, is_quoted: bool) -> bool:
        """A decimal, as a number without an exponent or as a string of one."""
        if is_quoted:
            self.pos += 1
        if not self.scan_number() or self.exponent or self.significant > _DECIMAL_DIGITS_MAX:
            return False
        if is_quoted:
            if self.pos >= self.end or self.data[self.pos] != 0x22:
                return False
            self.pos += 1
        mantissa = self.mantissa
        if self.fraction <= scale:
            missing = scale - self.fraction
            if mantissa and self.significant + missing > _DECIMAL_DIGITS_MAX:
                return False
            if mantissa:
                mantissa *= self.integer_powers[missing]
        else:
            surplus = self.fraction - scale
            if surplus > _DECIMAL_DIGITS_MAX:
                return False
            unit = self.integer_powers[surplus]
            rest = mantissa % unit
            mantissa //= unit
            if rest * 2 >= unit:
                mantissa += 1
        self.found = -mantissa if self.is_negative else mantissa
        return True

    def read_time(self, kind: int) -> bool:
        """A date as YYYY-MM-DD, or a timestamp: a date, with or without a time. Starts at the opening quote."""
        begin = self.pos + 1
        end = self.plain_end(begin)
        if end >= self.end or self.data[end] != 0x22 or end - begin < 10:
            return False
        self.pos = end + 1
        days = self.days(begin)
        if days == _DAYS_NONE:
            return False
        if kind == _DATE:
            self.found = days
            return end - begin == 10
        seconds = days * _DAY_SECONDS
        micros = 0
        at = begin + 10
        if at < end:
            if end - at < 9 or (self.data[at] != 0x54 and self.data[at] != 0x20):
                return False
            hour = self.two_digits(at + 1)
            minute = self.two_digits(at + 4)
            second = self.two_digits(at + 7)
            if self.data[at + 3] != 0x3A or self.data[at + 6] != 0x3A:
                return False
            if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
                return False
            seconds += (hour * 60 + minute) * 60 + second
            at += 9
            if at < end and self.data[at] == 0x2E:
                at += 1
                digits = 0
                while at < end and 0x30 <= self.data[at] <= 0x39:
                    if digits < 6:
                        micros = micros * 10 + (self.data[at] - 0x30)
                    digits += 1
                    at += 1
                if not 1 <= digits <= _FRACTION_DIGITS_MAX:
                    return False
                while digits < 6:
                    micros *= 10
                    digits += 1
            if at < end:
                offset = self.zone(at, end)
                if offset == _ZONE_NONE or kind == _LOCAL_MOMENT:
                    return False
                seconds -= offset
        self.found = seconds * _SECOND_US + micros
        return True

    def days(self, at: int) -> int:
        """The days of a date as YYYY-MM-DD."""
        century = self.two_digits(at)
        rest = self.two_digits(at + 2)
        month = self.two_digits(at + 5)
        day = self.two_digits(at + 8)
        if century < 0 or rest < 0 or self.data[at + 4] != 0x2D or self.data[at + 7] != 0x2D:
            return _DAYS_NONE
        if not 1 <= month <= 12:
            return _DAYS_NONE
        year = century * 100 + rest
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        before = self.before_month[month]
        length = self.before_month[month + 1] - before
        if is_leap:
            if month == 2:
                length += 1
            elif month > 2:
                before += 1
        if not 1 <= day <= length:
            return _DAYS_NONE
        leap_days = (year + 3) // 4 - (year + 99) // 100 + (year + 399) // 400
        return year * 365 + leap_days + before + day - 1 - _DAYS_TO_1970

    def two_digits(self, at: int) -> int:
        """The number of these digits, or a negative value."""
        tens = self.data[at] - 0x30
        ones = self.data[at + 1] - 0x30
        if not (0 <= tens <= 9 and 0 <= ones <= 9):
            return -1
        return tens * 10 + ones

    def zone(self, at: int, end: int) -> int:
        """Seconds east of Greenwich: Z, or hours and minutes with or without a colon between."""
        byte = self.data[at]
        if byte == 0x5A and end - at == 1:
            return 0
        if byte != 0x2B and byte != 0x2D:
            return _ZONE_NONE
        if end - at == 6 and self.data[at + 3] == 0x3A:
            minutes = self.two_digits(at + 4)
        elif end - at == 5:
            minutes = self.two_digits(at + 3)
        else:
            return _ZONE_NONE
        hours = self.two_digits(at + 1)
        if not (0 <= hours <= 23 and 0 <= minutes <= 59):
            return _ZONE_NONE
        offset = (hours * 60 + minutes) * 60
        return offset if byte == 0x2B else -offset

    def skip_value(self, depth: int) -> bool:
        """Skip a value outside the schema. False if it is malformed."""
        self.skip_space()
        if self.pos >= self.end or not depth:
            return False
        byte = self.data[self.pos]
        if byte == 0x22:
            return self.skip_string()
        if byte == 0x7B:
            self.pos += 1
            more = self.after_bracket(0x7D)
            while more == _ANOTHER:
                if not self.skip_name() or not self.skip_value(depth - 1):
                    return False
                more = self.after_element(0x7D)
            return more == _CLOSED
        if byte == 0x5B:
            self.pos += 1
            more = self.after_bracket(0x5D)
            while more == _ANOTHER:
                if not self.skip_value(depth - 1):
                    return False
                more = self.after_element(0x5D)
            return more == _CLOSED
        if byte == 0x74:
            return self.literal(self.true)
        if byte == 0x66:
            return self.literal(self.false)
        if byte == 0x6E:
            return self.literal(self.null)
        return self.scan_number()

    def skip_name(self) -> bool:
        if self.pos >= self.end or self.data[self.pos] != 0x22 or not self.skip_string():
            return False
        self.skip_space()
        if self.pos >= self.end or self.data[self.pos] != 0x3A:
            return False
        self.pos += 1
        return True

    def skip_string(self) -> bool:
        """At the opening quote."""
        begin = self.pos + 1
        while True:
            end = self.plain_end(begin)
            if end >= self.end:
                return False
            self.pos = end + 1
            if self.data[end] == 0x22:
                return True
            if self.data[end] != 0x5C or self.escape() < 0:
                return False
            begin = self.pos


def put_utf8(text: bytearray | memoryview, at: int, code: int) -> int:
    """Write a character; returns its size in bytes."""
    if code < 0x80:
        text[at] = code
        return 1
    if code < 0x800:
        text[at] = 0xC0 | code >> 6
        text[at + 1] = 0x80 | code & 0x3F
        return 2
    if code < 0x10000:
        text[at] = 0xE0 | code >> 12
        text[at + 1] = 0x80 | code >> 6 & 0x3F
        text[at + 2] = 0x80 | code & 0x3F
        return 3
    text[at] = 0xF0 | code >> 18
    text[at + 1] = 0x80 | code >> 12 & 0x3F
    text[at + 2] = 0x80 | code >> 6 & 0x3F
    text[at + 3] = 0x80 | code & 0x3F
    return 4
