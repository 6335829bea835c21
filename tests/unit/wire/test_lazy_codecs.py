"""Generated codecs are executed at their first use, once, whichever thread comes first."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.wire import api


def test_a_codec_is_executed_when_something_in_it_is_used() -> None:
    program = (
        "import sys\n"
        "from penstock.wire.api import describe_groups\n"
        "assert 'Request' not in vars(describe_groups)\n"
        "describe_groups.Request\n"
        "assert 'Request' in vars(describe_groups)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_codec_has_one_module_whichever_thread_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests keep the module that they have imported.
    monkeypatch.setitem(sys.modules, "penstock.wire.api.describe_acls", api.lazy("describe_acls"))
    monkeypatch.delitem(vars(api), "describe_acls")

    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: id(api.lazy("describe_acls")), range(64)))

    assert len(found) == 1
