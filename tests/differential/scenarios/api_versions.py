"""ApiVersions: the APIs, versions and features of a broker."""

from __future__ import annotations

import struct

from differential.codec import API_KEYS
from differential.script import CLIENT_ID, Body, Run, scenarios

NO_TAGS = b"\x00"
SOFTWARE = {"client_software_name": "differential", "client_software_version": "1.0"}


def ranges_of_every_api(run: Run) -> None:
    run.ask("ranges", SOFTWARE)


def error_of(run: Run, body: Body, version: int | None = None) -> None:
    """Record the error alone: the ranges are compared once."""
    run.ask("response", body, version=version)
    run.responses["response"] = {"error_code": run.responses["response"]["error_code"]}


def software_name_with_a_space(run: Run) -> None:
    error_of(run, {"client_software_name": "two words", "client_software_version": "1.0"})


def software_name_empty(run: Run) -> None:
    error_of(run, {"client_software_name": "", "client_software_version": ""})


def software_name_with_an_underscore(run: Run) -> None:
    error_of(run, {"client_software_name": "under_score", "client_software_version": "1-2.3"})


def version_not_known(run: Run) -> None:
    """The only API that responds to an unknown version: in version 0, with error 35 and its range."""
    header = struct.pack(">hhi", API_KEYS["api_versions"], 99, 7) + _text(CLIENT_ID) + NO_TAGS
    run.ask_frame("version 99", header + b"whatever", api="api_versions", version=0)
    error_of(run, SOFTWARE, version=3)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


SCENARIOS = (
    *scenarios(
        "api_versions",
        "api_versions",
        (
            ranges_of_every_api,
            software_name_with_a_space,
            software_name_empty,
            software_name_with_an_underscore,
        ),
    ),
    *scenarios("api_versions", "api_versions", (version_not_known,), versions=range(1)),
)
