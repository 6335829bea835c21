"""docs/cluster.md as a reader follows it: in one shell, on a cluster of `penstock dev up`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pages import CLUSTER_PAGE, ROOT, blocks_of
from penstock.testing.processes import Child, free_ports_in_a_row
from reader import Reader, make_program

BROKERS = 3
SECONDS_MAX = 120.0
PAGE_SECONDS_MAX = 600
pytestmark = [pytest.mark.slow, pytest.mark.timeout(PAGE_SECONDS_MAX), pytest.mark.xdist_group("zookeeper")]
RUN = "from penstock.cli.main import run; run()"


def test_the_commands_of_the_page_run_as_pasted(tmp_path: Path) -> None:
    data, port = tmp_path / "cluster", free_ports_in_a_row(BROKERS)
    up = (sys.executable, "-c", RUN, "dev", "up", "--port", str(port), "--data", str(data))
    with Child((*up, "--set", "offsets.topic.num.partitions=3"), log=tmp_path / "up.log") as running:
        running.wait_until(lambda: "ready; Ctrl-C" in running.tail(), what="ready", seconds_max=SECONDS_MAX)
        (folder := tmp_path / "reader").mkdir()
        bootstrap = ",".join(f"127.0.0.1:{each}" for each in range(port, port + BROKERS))
        reader = Reader(folder, bootstrap, data / "broker-1")
        make_program(
            folder / "programs" / "penstock", f'PYTHONPATH={ROOT / "src"} exec {sys.executable} -c "{RUN}" "$@"'
        )
        (folder / "penstock" / "penstock-cluster").symlink_to(data)
        try:
            printed = {block.line: reader.paste(block) for block in blocks_of(CLUSTER_PAGE) if block.is_run}
        finally:
            reader.close()
            print(running.tail())

    assert all("Traceback" not in words for words in printed.values())
    assert sum("OK: 3 brokers" in words for words in printed.values()) >= 4, "each time in the end all is well"
