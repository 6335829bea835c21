"""A model of replication: the rules that ship, driven by schedules of steps on logs that are lists of records.

Three brokers, their metadata store and their network are in one object, and everything that happens is a step: a
message is delivered, a transaction is done, a process dies. A seed draws some hundred steps; after the last everything
is healed. `History` checks every promise at every step. Where one is broken, `shrink` finds a shorter schedule that
breaks it too.

- `draw_schedule(seed)` and `run(schedule)`: one run, hundreds of times faster than one of `penstock.testing.sim`.
- `draw_reassigning_schedule(seed)`: the same with a fourth broker, and replicas that move to it and back.
- `shrink(schedule, fails)`: the same failure with fewer steps.
- `explore.explore(settings, depth)`: every order of a few coarse moves.
- `scripts.SCRIPTS`: schedules by hand, each to a place where one rule matters.
- `ablations.ABLATIONS`: rules of replication that can be taken out.
"""

from penstock.testing.model.history import Violation
from penstock.testing.model.schedule import Schedule, draw_reassigning_schedule, draw_schedule
from penstock.testing.model.walk import Result, run, shrink

__all__ = ["Result", "Schedule", "Violation", "draw_reassigning_schedule", "draw_schedule", "run", "shrink"]
