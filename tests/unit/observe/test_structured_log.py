import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

import penstock
from penstock.observe.log import FIELD_CHARACTERS_MAX, PARTS, LogFormat, configure, logger


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    """A stream to log to; restores the previous configuration."""
    root = logging.getLogger()
    handlers, level, before = list(root.handlers), root.level, structlog.get_config()
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_its_fields(out: io.StringIO) -> None:
    configure(log_format=LogFormat.JSON, stream=out)

    logger("storage").warning("log_directory_offline", directory="/d", partitions=frozenset({"b-0", "a-1"}))

    (line,) = lines(out)
    assert line.pop("time").endswith("Z")
    assert line == {
        "event": "log_directory_offline",
        "level": "warning",
        "part": "storage",
        "directory": "/d",
        "partitions": ["a-1", "b-0"],
    }


def test_events_below_the_level_are_dropped(out: io.StringIO) -> None:
    configure(log_format=LogFormat.JSON, level="warning", stream=out)

    logger("net").info("connected")
    logging.getLogger("library").info("chatter")

    assert lines(out) == []


def test_a_level_changes_while_the_process_runs_for_all_or_for_one_part(out: io.StringIO) -> None:
    levels = configure(log_format=LogFormat.JSON, stream=out)
    storage, groups = logger("broker").bind(part="storage"), logger("broker").bind(part="groups")

    storage.debug("not yet")
    levels.set("storage", "DEBUG")
    storage.debug("one part")
    groups.debug("not this one")
    levels.set("root", "ERROR")
    groups.warning("too low for all")
    levels.unset("storage")
    storage.debug("as all again")
    groups.error("high enough")

    assert [line["event"] for line in lines(out)] == ["one part", "high enough"]
    assert (levels.names()["root"], levels.names()["storage"]) == ("ERROR", "ERROR")


def test_every_part_that_logs_is_a_logger_whose_level_can_be_set() -> None:
    sources = "".join(path.read_text() for path in Path(penstock.__file__).parent.rglob("*.py"))

    parts = {*re.findall(r'bind\(part="(\w+)"', sources), *re.findall(r'logger\("(\w+)"\)', sources), "asyncio"}

    assert parts == set(PARTS)


def test_standard_library_records_have_the_same_format(out: io.StringIO) -> None:
    configure(log_format=LogFormat.JSON, stream=out)

    logging.getLogger("library").error("it %s", "broke")

    (line,) = lines(out)
    assert (line["event"], line["level"], line["part"]) == ("it broke", "error", "library")
    assert "time" in line


def test_a_failure_keeps_its_traceback_in_one_line(out: io.StringIO) -> None:
    configure(log_format=LogFormat.JSON, stream=out)

    try:
        raise KeyError("lost")
    except KeyError:
        logger("api").exception("request_failed")

    (line,) = lines(out)
    assert "KeyError: 'lost'" in line["exception"]


def test_long_text_is_truncated(out: io.StringIO) -> None:
    configure(log_format=LogFormat.JSON, stream=out)

    logger("api").info("odd_client", client_id="x" * 100_000)

    (line,) = lines(out)
    assert len(line["client_id"]) < FIELD_CHARACTERS_MAX + 100
    assert line["client_id"].endswith("(100000 characters)")


def test_text_format_is_not_json(out: io.StringIO) -> None:
    configure(log_format=LogFormat.TEXT, stream=out)

    logger("broker").info("ready", port=9092)

    assert "ready" in out.getvalue()
    assert "port=9092" in out.getvalue()
    assert not out.getvalue().startswith("{")


def test_an_unknown_level_is_rejected_with_a_list_of_levels() -> None:
    with pytest.raises(ValueError, match="'loud' is not one of debug, info, warning, error"):
        configure(level="loud")


def test_control_characters_in_client_names_are_escaped(out: io.StringIO) -> None:
    configure(log_format=LogFormat.TEXT, stream=out)

    logger("group").warning("member_left", group="\x1b[2J\x9b", member=("a\x1b",))
    try:
        raise ValueError("bad \x1b]0;owned\x07")
    except ValueError:
        logger("group").exception("failed")

    assert "\\x1b[2J\\x9b" in out.getvalue()
    assert "bad \\x1b]0;owned\\x07" in out.getvalue()
    assert not {"\x1b", "\x9b", "\x07"} & set(out.getvalue())
