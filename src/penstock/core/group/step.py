"""The vocabulary of steps, which coordinators share, under the name that groups know it by."""

from penstock.core.step import (
    NOTHING,
    Answer,
    CancelTimer,
    Event,
    Job,
    JobDone,
    Reply,
    SetTimer,
    Step,
    Ticket,
)

__all__ = ["NOTHING", "Answer", "CancelTimer", "Event", "Job", "JobDone", "Reply", "SetTimer", "Step", "Ticket"]
