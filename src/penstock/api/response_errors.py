"""Counts the error codes in a response for the metrics."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.observe.counters import RequestCounters
from penstock.wire.primitives import Message
from penstock.wire.slices import is_long

FETCH, OFFSET_COMMIT = 1, 8


def count_errors(counters: RequestCounters, api_key: int, response: Any) -> None:
    """Count every code that is not 0. Only lists whose elements can have one are walked.

    The elements of long lists are counted one by one as they are written, with `count_errors_in`.
    """
    if api_key == OFFSET_COMMIT:
        for _, _, results in response.topics:
            for _, code in results:
                if code:
                    count_commit_errors(counters, response)
                    return
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


def count_commit_errors(counters: RequestCounters, response: Any) -> None:
    """Count the codes of an offset commit by code: there may be a hundred thousand of one."""
    codes = Counter([code for _, _, results in response.topics for _, code in results if code])
    for code, count in codes.items():
        counters.failed(OFFSET_COMMIT, code, count)


def count_errors_in(counters: RequestCounters, api_key: int, message: Message) -> None:
    """Count the codes of one message and of its lists that are not long."""
    name = message.ERROR_FIELD
    if name is not None and (code := getattr(message, name)):
        counters.failed(api_key, code)
    for name in message.ERROR_LISTS:
        found = getattr(message, name) or ()
        if not is_long(found):
            for each in found:
                count_errors_in(counters, api_key, each)
