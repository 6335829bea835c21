"""A plan of the controller: the operations to write, and the outcome of each requested change."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.metadata.operations import Operation
from penstock.model.errors import BrokerError

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[Outcome]):
    """Operations for one transaction, and the outcome of each requested change, in the order of the request.

    A refused change has no operation and does not stop the others. The outcomes hold once the operations are written.
    """

    operations: tuple[Operation, ...]
    outcomes: tuple[Outcome | BrokerError, ...]
