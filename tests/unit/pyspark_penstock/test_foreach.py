"""What a function for ``foreachBatch`` passes to the writer about the calling query."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from pyspark import cloudpickle

from pyspark_penstock.foreach import each_batch


class Table:
    """A table of Spark Connect, and its writer: the session has no Java."""

    sparkSession = None

    def __init__(self) -> None:
        self.chosen: dict[str, str] = {}

    @property
    def write(self) -> Self:
        return self

    def format(self, _: str) -> Self:
        return self

    mode = format

    def options(self, **options: str) -> Self:
        self.chosen.update(options)
        return self

    def option(self, name: str, value: str) -> Self:
        self.chosen[name] = value
        return self

    def save(self) -> None:
        pass


def written(function: Any, batch: int) -> dict[str, str]:
    table = Table()
    function(table, batch)
    return table.chosen


IN_ANOTHER_PROCESS = """
import json, pickle, sys
from pathlib import Path
function, written = pickle.loads(Path(sys.argv[1]).read_bytes())
print(json.dumps(written(function, 4)))
"""


def test_on_spark_connect_the_process_is_the_run(tmp_path: Path) -> None:
    """A second output within one run is distinguished from the replay of another run."""
    function = each_batch("totals", {"topic": "t"})

    chosen = written(function, 3)

    assert (chosen["sinkId"], chosen["batchId"]) == ("totals", "3")
    assert chosen["queryRun"] == written(each_batch("totals", {"topic": "t"}), 3)["queryRun"] != ""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    (tmp_path / "function").write_bytes(cloudpickle.dumps((function, written)))
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    found = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "function")], check=True, capture_output=True
    )
    again = json.loads(found.stdout)
    assert again["batchId"] == "4"
    assert again["queryRun"] not in ("", chosen["queryRun"])
