"""Codecs that nothing uses are not generated, and those that are used are executed when they are."""

from __future__ import annotations

import ast
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType

import pytest

import penstock
from penstock.wire import api
from penstock.wire.api.table import TABLE

SOURCE = Path(penstock.__file__).parent
RACERS = 8

LATER = {
    "replication": {"alter_partition"},
    "security": {"alter_user_scram_credentials"},
    "share groups": {
        "alter_share_group_offsets",
        "delete_share_group_offsets",
        "delete_share_group_state",
        "describe_share_group_offsets",
        "initialize_share_group_state",
        "read_share_group_state",
        "read_share_group_state_summary",
        "share_acknowledge",
        "share_fetch",
        "share_group_describe",
        "share_group_heartbeat",
        "write_share_group_state",
    },
}
"""Modules whose user comes with a feature that is not built yet."""


def imported() -> set[str]:
    found: set[str] = set()
    for path in SOURCE.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == api.__name__:
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{api.__name__}."):
                found.add((node.module or "").rpartition(".")[2])
    return found


def test_every_codec_has_a_user() -> None:
    later = set().union(*LATER.values())
    generated = {entry.module for entry in TABLE.values()}

    assert generated - imported() == later


def test_a_broker_starts_without_executing_most_codecs() -> None:
    script = (
        "import sys, types, penstock.broker.wiring\n"
        "print(sum(type(module) is types.ModuleType for name, module in sys.modules.items() "
        "if name.startswith('penstock.wire.api.') and not name.endswith('.table')))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert int(ran.stdout) < len(TABLE) / 10


def test_a_codec_is_executed_once_although_threads_race_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.wire.api.share_fetch", raising=False)
    monkeypatch.delitem(api.__dict__, "share_fetch", raising=False)
    module = api.lazy("share_fetch")
    start = Barrier(RACERS)

    def use() -> type:
        start.wait()
        found: type = module.Response
        return found

    with ThreadPoolExecutor(RACERS) as pool:
        found = {running.result() for running in [pool.submit(use) for _ in range(RACERS)]}

    assert len(found) == 1
    assert type(module) is ModuleType


def test_a_module_that_does_not_exist_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'vote'"):
        api.lazy("vote")
