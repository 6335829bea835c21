"""A decision of the controller: what to write, and what to tell whoever asked."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.metadata.operations import Operation
from penstock.model.errors import BrokerError

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[Outcome]):
    """Operations for one transaction, and the outcome of each thing asked for, in the order asked.

    What was refused has no operation here: the rest is still done. The outcomes hold once the operations have.
    """

    operations: tuple[Operation, ...]
    outcomes: tuple[Outcome | BrokerError, ...]
