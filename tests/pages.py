"""The pages as a reader follows them: their code blocks, in order, ready to run.

A block of `sh` or `python` is run as it stands, or says in its first line why it cannot be (`NOT_RUN`); `text` is for
output and for what has placeholders. `toml`, `yaml` and `json` are contents of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_RUN = "# not run by the tests: "
ON_A_CLUSTER = "# on a cluster\n"
"""Blocks that a test of its own runs on a standalone cluster (`spark/test_sessions_clusters.py`)."""
FENCE = "```"
RUN = ("sh", "python")
LANGUAGES = (*RUN, "text", "toml", "yaml", "json", "")
"""The last for drawings."""
SHELL_PAGES = (
    "README.md",
    "docs/getting-started.md",
    "docs/groups.md",
    "docs/queues.md",
    "docs/delivery.md",
    "docs/transactions.md",
    "docs/clients.md",
    "docs/configuration.md",
    "docs/operations.md",
    "docs/filtering.md",
    "docs/partitions.md",
    "docs/scheduling.md",
    "docs/tuning.md",
    "docs/testing.md",
    "docs/scale.md",
)
"""In the order in which README names them."""
CLUSTER_PAGE = "docs/cluster.md"
"""Followed on a cluster of `penstock dev up` (`cluster/test_cluster_page.py`)."""
SPARK_PAGES = (
    "docs/spark.md",
    "docs/spark-sink.md",
    "docs/spark-sql.md",
    "docs/spark-metrics.md",
    "docs/spark-deploy.md",
    "docs/pipelines.md",
)
ADDRESS = re.compile(r"\b(localhost|127\.0\.0\.1):9092\b")
SMALLER = ((re.compile(r"--messages \d+"), "--messages 500"), (re.compile(r"--seconds \d+"), "--seconds 1"))
"""What a machine is measured with takes minutes; a tenth of a second shows that it works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.text.startswith((NOT_RUN, ON_A_CLUSTER))

    @property
    def needs_spark(self) -> bool:
        return self.language == "python" and (self.page in SPARK_PAGES or "spark" in self.text)

    def at(self, bootstrap: str) -> str:
        """The text, with this broker in place of the one on the usual port, and small measurements."""
        text = ADDRESS.sub(bootstrap, self.text)
        for pattern, smaller in SMALLER:
            text = pattern.sub(smaller, text)
        return text


def blocks_of(page: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    language, begin, lines = None, 0, list[str]()
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith(FENCE):
            lines.append(line)
        elif language is None:
            language, begin, lines = line.removeprefix(FENCE).strip(), number, []
        else:
            yield Block(page=page, line=begin, language=language, text="\n".join(lines) + "\n")
            language = None
    assert language is None, f"{page}:{begin} has no end"


def indented_code(page: str) -> Iterator[str]:
    """Places of code that is only indented, which nothing would run."""
    fenced, before = False, ""
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith(FENCE):
            fenced = not fenced
        elif not fenced and line.startswith("    ") and not before:
            yield f"{page}:{number}"
        before = line
