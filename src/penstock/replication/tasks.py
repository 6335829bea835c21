"""Tasks of the parts that talk to other brokers; they end with the broker."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Starts tasks while `run` does. Those of before wait for it, and afterwards none is started any more."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._waiting: list[Coroutine[Any, Any, None]] = []
        self._over = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task; raises `RuntimeError` once the broker is stopping."""
        if self._over:
            raise RuntimeError("the broker is stopping")
        if self._group is None:
            self._waiting.append(work)
        else:
            self._group.create_task(work)

    async def run(self) -> None:
        """Run every task until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                waiting, self._waiting = self._waiting, []
                for work in waiting:
                    group.create_task(work)
                await asyncio.get_running_loop().create_future()
        finally:
            self.close()

    def close(self) -> None:
        """Start no further task, also where `run` was never called."""
        self._over = True
        self._group = None
        for work in self._waiting:
            work.close()
        self._waiting.clear()
