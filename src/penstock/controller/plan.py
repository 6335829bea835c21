"""A plan of the controller: the operations to write, and the outcome of each requested change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.metadata.operations import Operation, size_of
from penstock.metadata.store import NODE_BYTES_MAX
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import PolicyViolation

Outcome = TypeVar("Outcome")

PlanStep = tuple[Operation, ...]
"""Operations that are done together or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[Outcome]):
    """Steps to write in order, and the outcome of each item of the request, in its order.

    An item that was refused has no step here: the rest is still done. The outcomes hold once all steps are done. The
    metadata is sound after any of the steps, so a plan too large for one transaction may stop between two of them.
    """

    steps: tuple[PlanStep, ...]
    outcomes: tuple[Outcome | BrokerError, ...]

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(operation for step in self.steps for operation in step)


def transactions(steps: Sequence[PlanStep], *, operations_max: int, bytes_max: int) -> Iterator[PlanStep]:
    """Put whole steps together, in their order, into as few transactions as their bounds allow."""
    together: list[Operation] = []
    size = 0
    for step in steps:
        step_bytes = sum(map(size_of, step))
        assert len(step) <= operations_max, f"a step of {len(step)} operations"
        assert step_bytes <= bytes_max, f"a step of {step_bytes} bytes"
        if together and (len(together) + len(step) > operations_max or size + step_bytes > bytes_max):
            yield tuple(together)
            together, size = [], 0
        together += step
        size += step_bytes
    if together:
        yield tuple(together)


def storable(data: bytes) -> bytes:
    """Refuse a node that no store holds: settings of half a megabyte."""
    if len(data) > NODE_BYTES_MAX:
        raise PolicyViolation(f"{len(data)} bytes of metadata are more than the {NODE_BYTES_MAX} of one node")
    return data
