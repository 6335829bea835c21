"""What tests of penstock and of programs that use it need: time, disks, brokers and whole clusters of their own making.

- `ManualClock` and `ManualLoop`: time that a test moves by hand.
- `MemDisk`: a disk in memory that loses what was not fsynced, fills up, fails and rots on request.
- `penstock.testing.sim`: whole brokers and clients in one process on virtual time, with faults drawn from a seed.
- `penstock.testing.model`: the rules of replication on logs that are lists, with every message and crash a step.
- `penstock.testing.broker_process`: brokers as processes.
- `penstock.testing.histories`: what clients saw, and whether it may be.
"""

from penstock.testing.manual import ManualClock, ManualLoop
from penstock.testing.mem_disk import MemDisk

__all__ = ["ManualClock", "ManualLoop", "MemDisk"]
