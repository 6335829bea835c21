"""The error codes in a response, wherever its message has them, counted."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import Any, cast

from penstock.observe.counters import RequestCounters
from penstock.wire.primitives import Message
from penstock.wire.slices import is_long

PRODUCE, FETCH, OFFSET_COMMIT = 0, 1, 8
LIST_OF = re.compile(r"list\[(\w+)\]")


def count_errors(counters: RequestCounters, api_key: int, response: Any) -> None:
    """Count every code that is not 0. Only lists whose elements can hold one are walked.

    The elements of long lists are counted one by one as they are written, with `count_errors_in`.
    """
    if api_key == OFFSET_COMMIT:
        for _, _, results in response.topics:
            for _, code in results:
                if code:
                    counters.failed(api_key, code)
        return
    if api_key > FETCH:
        count_errors_in(counters, api_key, response)
        return
    for topic in response.topics:
        for partition in topic[2]:
            if partition.error_code:
                counters.failed(api_key, partition.error_code)
    if api_key == FETCH and response.error_code:
        counters.failed(api_key, response.error_code)


def count_errors_in(counters: RequestCounters, api_key: int, message: Any) -> None:
    """Count the codes of one message and of its lists that are not long."""
    has_code, lists = shape(cast("Any", type(message)))
    if has_code and message.error_code:
        counters.failed(api_key, message.error_code)
    for name in lists:
        found = getattr(message, name) or ()
        if not is_long(found):
            for each in found:
                count_errors_in(counters, api_key, each)


@cache
def shape(message: Any) -> tuple[bool, tuple[str, ...]]:
    """Whether a type of message has a code, and which of its fields are lists of messages that have one somewhere."""
    slots: tuple[str, ...] = getattr(message, "__slots__", ())
    hints = cast("dict[str, object]", message.__init__.__annotations__)
    lists: list[str] = []
    for name in slots:
        found = LIST_OF.match(str(hints.get(name, "")))
        element = getattr(sys.modules[message.__module__], found[1], None) if found is not None else None
        if isinstance(element, type) and issubclass(element, Message) and any(shape(cast("Any", element))):
            lists.append(name)
    return "error_code" in slots, tuple(lists)
