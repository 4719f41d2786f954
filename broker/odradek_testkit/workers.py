"""Workers for tests: the functions run at once, where the call is, so that virtual time and a disk in memory hold.

Functions enter, their results leave; tests give it to what wants the port `base.ports.Workers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from odradek.base.errors import WorkerDiedError

T = TypeVar("T")


class InlineWorkers:
    """`Workers` without processes."""

    def __init__(self) -> None:
        """Nobody has died."""
        self.dying = 0
        """So many of the next calls end like a process that dies before it does anything."""
        self.calls = 0

    async def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """The function's result, at once."""
        self.calls += 1
        if self.dying:
            self.dying -= 1
            raise WorkerDiedError("the worker was told to die")
        return function(*arguments)
