"""Implements `base.ports.Workers` without processes, for virtual time and disks in memory: functions run at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from odradek.base.errors import WorkerDiedError

T = TypeVar("T")


class InlineWorkers:
    """`Workers` that run functions in the caller."""

    def __init__(self) -> None:
        """Create workers that work."""
        self.dying = 0
        """Number of next calls that fail as if the process died before it did anything."""
        self.calls = 0

    async def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return the result of the function, at once."""
        self.calls += 1
        if self.dying:
            self.dying -= 1
            raise WorkerDiedError("the test made the worker die")
        return function(*arguments)
