"""Standing watches out of ZooKeeper's one-shot ones.

A one-shot event enters; the watch first sends the request that arms it again and then calls its owner. Requests are
answered in order, so a read that the owner makes in the callback is later than the arming: what changes after that read
fires again, and nothing is missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from odradek.zk.port import NoNode

Fired = Callable[[Any], None]
"""Called with a one-shot event, whose `type` is "NONE" when only the connection changed."""


class WatchSource(Protocol):
    """What a standing watch needs of the client."""

    def submit_children(self, path: str, watch: Fired | None = None) -> asyncio.Future[list[str]]:
        """Send a request for the children at once; `watch` is called by their next change."""
        ...

    def submit_exists(self, path: str, watch: Fired | None = None) -> asyncio.Future[Any]:
        """Send a request for the stat, or None, at once; `watch` is called by the znode's next change."""
        ...

    def forget(self, watch: StandingWatch) -> None:
        """Drop a cancelled watch."""
        ...


class StandingWatch:
    """A watch that arms itself again each time it fires."""

    __slots__ = ("_active", "_armed", "_callback", "_client", "children", "path")

    def __init__(self, client: WatchSource, path: str, callback: Callable[[], None], *, children: bool) -> None:
        """Watches the set of children, or else the znode itself. Nothing is sent before `arm`."""
        self._client = client
        self._callback = callback
        self._active = True
        self._armed = 0
        self.path = path
        self.children = children

    def cancel(self) -> None:
        """Call back no more."""
        self._active = False
        self._client.forget(self)

    def arm(self) -> None:
        """Ask the ensemble to tell of the next change."""
        self._armed += 1
        round_number = self._armed

        def fired(event: Any) -> None:
            # Events of kind NONE are kazoo's word for a lost connection; the client re-arms after it came back.
            if event.type != "NONE" and round_number == self._armed:
                self.arm_and_call()

        if self.children:
            future = self._client.submit_children(self.path, fired)
            future.add_done_callback(lambda done: self._children_read(done, fired))
        else:
            self._client.submit_exists(self.path, fired).add_done_callback(_retrieve)

    def _children_read(self, done: asyncio.Future[Any], fired: Fired) -> None:
        if done.cancelled():
            return
        if isinstance(done.exception(), NoNode) and self._active:
            # The parent does not exist: its creation is told by a watch on its existence. It may have come to be in
            # between; then the answer is a stat, and children must be watched after all.
            self._client.submit_exists(self.path, fired).add_done_callback(self._existence_read)

    def _existence_read(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None and done.result() is not None and self._active:
            self.arm_and_call()

    def arm_and_call(self) -> None:
        """Arm, then tell: a read in the callback goes out after the request that armed."""
        if self._active:
            self.arm()
            self._callback()


def _retrieve(done: asyncio.Future[Any]) -> None:
    """Look at the outcome of a request whose failure needs no reaction: it is repeated after a reconnection."""
    if not done.cancelled():
        done.exception()
