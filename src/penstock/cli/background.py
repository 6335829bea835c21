"""Work in a thread of a command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import Event, Thread
from typing import Any


class Background(ABC):
    """Work in a thread, from entering to leaving."""

    def __init__(self, name: str) -> None:
        self._stop = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """Run in the thread until it is stopped."""

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
