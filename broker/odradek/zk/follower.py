"""Keeps what a broker has read from ZooKeeper up to date: one task that reads again whenever something was reported.

`zk/users`, `zk/acls` and `zk/quotas` have a follower each. They say what to read; the follower says when, and whether
everything has to be read.

Invariants: there is one read at a time; after a new connection and after a failed read everything is read; while
ZooKeeper does not answer, nothing is changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from odradek.base.ports import Clock
from odradek.zk.port import SessionEvent, Watch, ZkClient, ZkError

log = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""Milliseconds before ZooKeeper is read again after a failure."""


class Follower:
    """Calls `read` in a task after `wake` or `want_all`. `read` asks `take_all` what it has to read."""

    def __init__(self, zk: ZkClient, clock: Clock, subject: str, read: Callable[[], Awaitable[None]]) -> None:
        """`subject` names what is read, in the plural, for the log. Errors of `read` other than `ZkError` are bugs."""
        self._zk: Final = zk
        self._clock: Final = clock
        self._subject: Final = subject
        self._read: Final = read
        self._is_all_wanted = True
        self._wanted = asyncio.Event()
        self._watches: list[Watch] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the task runs."""
        return self._task is not None

    def listen(self, watches: Mapping[str, Callable[[], None]]) -> None:
        """Note new connections, and changes of the children of some znodes, which call a function each. Call it once,
        before the first read, so that no change is missed."""
        self._zk.on_session(self._session_event)
        self._watches = [self._zk.watch_children(path, changed) for path, changed in watches.items()]

    def run(self) -> None:
        """Start the task. Call it once."""
        name = self._subject.replace(" ", "-")
        self._task = asyncio.get_running_loop().create_task(self._follow(), name=f"follow-{name}")

    def wake(self) -> None:
        """Read what has changed."""
        self._wanted.set()

    def want_all(self) -> None:
        """Read everything."""
        self._is_all_wanted = True
        self._wanted.set()

    def take_all(self) -> bool:
        """Return whether everything has to be read now; then it does not have to be read again unless this fails."""
        is_all, self._is_all_wanted = self._is_all_wanted, False
        return is_all

    async def close(self) -> None:
        """Stop following. Idempotent."""
        for watch in self._watches:
            watch.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _session_event(self, event: SessionEvent) -> None:
        if event in (SessionEvent.ESTABLISHED, SessionEvent.RESUMED):
            self.want_all()

    async def _follow(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._read()
            except ZkError as error:
                log.warning(
                    "%s cannot be read; the broker keeps those that it has, and tries again: %s", self._subject, error
                )
                self.want_all()
                await self._clock.sleep_ms(RETRY_MS)
