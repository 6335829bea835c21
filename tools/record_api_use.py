"""Count which requests the clients of tests/protocol send, and write docs/reference/api_use.json.

    python tools/record_api_use.py [MODULE...]

Each module of tests/protocol runs against a broker of its own, whose `penstock_requests_total` is then scraped; stories
run once with each client. Tests that start their own brokers are skipped, so the result is a lower bound.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import LOOPBACK, free_port
from protocol.clients.library import CLIENTS
from protocol.group_members import QUICK

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "protocol"
API_USE = ROOT / "docs" / "reference" / "api_use.json"
MODULE_SECONDS_MAX = 600
SCRAPE_SECONDS_MAX = 30

Use = dict[str, list[int]]


def requests_of(modules: Sequence[Path], client: str = "") -> Use:
    """By API, the versions that the clients of these modules sent, or one of them."""
    metrics_port = free_port()
    with PenstockProcess(settings={"metrics.listener": f"{LOOPBACK}:{metrics_port}", **QUICK}) as broker:
        before = scrape(metrics_port)
        environment = {**os.environ, "PENSTOCK_TEST_BOOTSTRAP": broker.bootstrap}
        command = [sys.executable, "-m", "pytest", "-q", "-k", client, *map(str, modules)]
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=MODULE_SECONDS_MAX, check=False)
        print(f"{client or modules[0].stem}: pytest ended with {done.returncode}")
        after = scrape(metrics_port)
    use: Use = {}
    for (api, version), count in sorted(after.items()):
        if count > before.get((api, version), 0):
            use.setdefault(api, []).append(version)
    return {api: sorted(versions) for api, versions in use.items()}


def scrape(port: int) -> dict[tuple[str, int], float]:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=SCRAPE_SECONDS_MAX) as response:
        text = response.read().decode()
    return {
        (sample.labels["api"], int(sample.labels["version"])): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "penstock_requests_total"
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help='such as test_kcat, or "stories of kcat"; all if none')
    wanted: list[str] = parser.parse_args(arguments).modules
    seen: dict[str, Use] = json.loads(API_USE.read_text()) if API_USE.exists() and wanted else {}
    stories = sorted(TESTS.glob("test_*_stories.py"))
    parts = {module.stem: ([module], "") for module in sorted(TESTS.glob("test_*.py")) if module not in stories}
    parts |= {f"stories of {kind.name}": (stories, kind.name) for kind in CLIENTS}
    seen = {name: use for name, use in seen.items() if name in parts}
    for name, (modules, client) in parts.items():
        if wanted and name not in wanted:
            continue
        use = requests_of(modules, client)
        if use:
            seen[name] = use
    lines = [f"{json.dumps(module)}: {json.dumps(use)}" for module, use in sorted(seen.items())]
    API_USE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"written: {API_USE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
