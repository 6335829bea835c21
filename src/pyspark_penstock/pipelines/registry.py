"""The pipelines of this machine, so that another terminal can list, watch and stop them.

A pipeline has one small file, replaced with every batch. A pipeline that died leaves its file with its last state, and
the process id in it shows whether the pipeline still runs.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import sleep
from typing import Any

from pyspark_penstock.errors import PenstockRuntimeError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
STATE_VARIABLE = "PENSTOCK_STATE_DIR"
STOP_POLL_SECONDS = 0.1
STOP_SECONDS_MAX = 60.0
SECOND_MS = 1000.0


class PipelineError(PenstockRuntimeError):
    """A request for a pipeline that cannot be fulfilled; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress:
    """The progress of one query since the pipeline started."""

    query: str
    batch: int = -1
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    """The processing rate of the last batch."""
    lag: int | None = None
    """Unread records when the last batch was planned."""
    late_rows: int = 0
    """Rows that arrived after their window had closed, and were dropped."""
    batch_ms: int = 0
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineState:
    """The state of a pipeline."""

    name: str
    kind: str
    what: str
    """Its source and target, as text."""
    pid: int
    pid_started: int
    """When the process started, in the kernel's ticks: process ids are reused."""
    started_ms: int
    checkpoint: str = ""
    status: str = "starting"
    error: str = ""
    queries: tuple[QueryProgress, ...] = ()
    updated_ms: int = 0

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> PipelineState:
        fields: dict[str, Any] = dict(found)
        fields["queries"] = tuple(QueryProgress(**each) for each in found["queries"])
        return cls(**fields)


def default_state_dir(environment: Mapping[str, str] | None = None) -> Path:
    """PENSTOCK_STATE_DIR, else the XDG state directory."""
    known = os.environ if environment is None else environment
    if chosen := known.get(STATE_VARIABLE):
        return Path(chosen)
    if base := known.get("XDG_STATE_HOME"):
        return Path(base) / "penstock"
    return Path(known.get("HOME", "~")).expanduser() / ".local" / "state" / "penstock"


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise PipelineError(f"{name!r} is not a pipeline name: letters, digits, '.', '_' and '-', at most 100")
    return name


def process_started(pid: int) -> int | None:
    """When a process started, in ticks since boot; None if it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # A zombie has ended and waits for its parent.
    return None if fields[0] == "Z" else int(fields[19])


@dataclass(slots=True)
class Registry:
    """The files of the pipelines in one state directory."""

    folder: Path
    alive: Callable[[int], int | None] = field(default=process_started)

    def _path(self, name: str) -> Path:
        return self.folder / "pipelines" / f"{check_name(name)}.json"

    def checkpoint_of(self, name: str) -> str:
        """The default checkpoint of a pipeline."""
        return str(self.folder.resolve() / "checkpoints" / check_name(name))

    def claim(self, state: PipelineState) -> None:
        """Take a name; PipelineError if a pipeline of that name runs."""
        known = self.find(state.name)
        if known is not None and self.runs(known) and known.pid != state.pid:
            raise PipelineError(
                f"a pipeline {state.name} runs already, as process {known.pid}: choose another --name, or "
                f"`penstock pipeline stop {state.name}`"
            )
        self.save(state)

    def save(self, state: PipelineState) -> None:
        path = self._path(state.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{state.pid}.draft")
        draft.write_text(json.dumps(asdict(state)))
        draft.replace(path)

    def find(self, name: str) -> PipelineState | None:
        return self._read(self._path(name))

    def every(self) -> list[PipelineState]:
        found = (self._read(path) for path in sorted((self.folder / "pipelines").glob("*.json")))
        return [self.judged(each) for each in found if each is not None]

    def judged(self, state: PipelineState) -> PipelineState:
        """The state with its actual status: a running pipeline whose process does not exist has died."""
        if state.status in ("starting", "running") and not self.runs(state):
            return replace(state, status="died")
        return state

    def runs(self, state: PipelineState) -> bool:
        return self.alive(state.pid) == state.pid_started

    def forget(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def stop(self, name: str, *, seconds_max: float = STOP_SECONDS_MAX, now: bool = False) -> PipelineState:
        """Stop a pipeline's process after its batch, or kill it, and wait until it has ended."""
        state = self.find(name)
        if state is None:
            raise PipelineError(f"there is no pipeline {name}: `penstock pipeline list` shows all")
        if not self.runs(state):
            raise PipelineError(f"the pipeline {name} does not run: it {self.judged(state).status}")
        os.kill(state.pid, signal.SIGKILL if now else signal.SIGTERM)
        for _ in range(int(seconds_max / STOP_POLL_SECONDS)):
            if not self.runs(state):
                return self.judged(self.find(name) or state)
            sleep(STOP_POLL_SECONDS)
        raise PipelineError(
            f"the pipeline {name} (process {state.pid}) has not ended within {seconds_max:.0f} s: --now kills it, and "
            "nothing is lost or duplicated"
        )

    @staticmethod
    def _read(path: Path) -> PipelineState | None:
        try:
            return PipelineState.of_json(json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            raise PipelineError(f"{path} is not a state file of a pipeline: delete it if it is in the way") from None


def advanced(known: QueryProgress, report: Mapping[str, Any]) -> QueryProgress:
    """A query's progress after one more report of Spark's."""
    late = sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in report.get("stateOperators", ()))
    return QueryProgress(
        query=known.query,
        batch=int(report["batchId"]),
        batches=known.batches + (report["batchId"] > known.batch),
        rows=known.rows + int(report["numInputRows"]),
        rows_per_second=float(report.get("processedRowsPerSecond") or 0.0),
        lag=lag_of(report),
        late_rows=known.late_rows + late,
        batch_ms=int(report.get("batchDuration") or 0),
        at=str(report["timestamp"]),
    )


def lag_of(report: Mapping[str, Any]) -> int | None:
    """Records between the end of a batch and the latest offsets; None if no source reports them."""
    lag: int | None = None
    for source in report.get("sources", ()):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if latest and end:
            lag = (lag or 0) + sum(max(0, last - end.get(place, 0)) for place, last in latest.items())
    return lag


def _offsets(value: Any) -> dict[tuple[str, str], int]:
    """Spark's listeners pass offsets as JSON or as its text."""
    found: Any = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(found, dict):
        return {}
    offsets: dict[tuple[str, str], int] = {}
    parts: Any = found  # pyright: ignore[reportUnknownVariableType]
    for topic, numbers in parts.items():
        if isinstance(numbers, dict):
            offsets |= {(str(topic), str(partition)): int(each) for partition, each in numbers.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return offsets
