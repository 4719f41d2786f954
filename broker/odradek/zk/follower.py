"""Keeps what a broker has read from ZooKeeper up to date: one task that reads again whenever something was reported.

`zk/users`, `zk/acls`, `zk/quotas` and `zk/delegation_tokens` have a follower each. They say what to read; the follower
says when, and whether everything has to be read. Kafka announces changes of rules and tokens with `Notifications`.

Invariants: there is one read at a time; after a new connection and after a failed read everything is read; while
ZooKeeper does not answer, nothing is changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from odradek.base.ports import Clock
from odradek.zk.port import NoNode, SessionEvent, Watch, ZkClient, ZkError
from odradek.zk.registration import CHANGE_RETENTION_MS

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


class Notifications:
    """The sequential znodes that announce changes, below one or more parents. The caller's task is the only user."""

    def __init__(self, zk: ZkClient, clock: Clock, parents: Sequence[str]) -> None:
        """Create it. The client may be unconnected."""
        self._zk: Final = zk
        self._clock: Final = clock
        self._parents: Final = parents
        self._seen: dict[str, int] = {}
        """Paths of the notifications that have been handled, and when they were created, in ms since 1970."""
        self._new: dict[str, int] = {}
        """The same of those that `new` returned last."""
        self._present: set[str] = set()

    async def new(self) -> dict[str, bytes | None]:
        """Return the content of each notification that has not been handled, by path; None if it has been deleted.

        Raises `ZkError`.
        """
        names = await self._zk.children_many(self._parents)
        self._present = {f"{parent}/{name}" for parent in self._parents for name in names[parent] or ()}
        found = await self._zk.get_many(sorted(self._present - self._seen.keys()))
        self._new = {path: node[1].ctime_ms for path, node in found.items() if node is not None}
        return {path: None if node is None else node[0] for path, node in found.items()}

    async def handled(self) -> None:
        """What `new` returned has been handled. Delete old notifications, as all brokers do. Raises `ZkError`."""
        self._seen = {path: created for path, created in self._seen.items() if path in self._present} | self._new
        horizon = self._clock.wall_ms() - CHANGE_RETENTION_MS
        for path in [path for path, created in self._seen.items() if created < horizon]:
            try:
                await self._zk.delete(path)
            except NoNode:
                continue
