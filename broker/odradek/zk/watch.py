"""Permanent watches, implemented with ZooKeeper's one-time watches.

When a one-time watch fires, the request that sets it again is sent first, and then the callback is called. ZooKeeper
handles requests in order, so a read in the callback happens after the watch is set. A change after the read fires the
watch again, so no change is missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from odradek.zk.port import NoNode

Fired = Callable[[Any], None]
"""Called with the event of a one-time watch. Its `type` is "NONE" if only the connection changed."""


class WatchSource(Protocol):
    """The methods of the client that a watch uses."""

    def submit_children(self, path: str, watch: Fired | None = None) -> asyncio.Future[list[str]]:
        """Send a request for the children immediately. `watch` is called at their next change."""
        ...

    def submit_exists(self, path: str, watch: Fired | None = None) -> asyncio.Future[Any]:
        """Send a request for the stat, or None, immediately. `watch` is called at the next change of the znode."""
        ...

    def forget(self, watch: StandingWatch) -> None:
        """Remove a cancelled watch."""
        ...


class StandingWatch:
    """A watch that is set again each time it fires."""

    __slots__ = ("_active", "_armed", "_callback", "_client", "children", "path")

    def __init__(self, client: WatchSource, path: str, callback: Callable[[], None], *, children: bool) -> None:
        """Watches the set of children, or the znode itself. Sends nothing before `arm`."""
        self._client = client
        self._callback = callback
        self._active = True
        self._armed = 0
        self.path = path
        self.children = children

    def cancel(self) -> None:
        """Stop the callbacks."""
        self._active = False
        self._client.forget(self)

    def arm(self) -> None:
        """Set the one-time watch for the next change."""
        self._armed += 1
        round_number = self._armed

        def fired(event: Any) -> None:
            # kazoo sends events of type NONE when the connection is lost; the client sets watches again after a
            # reconnection.
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
            # The parent does not exist, so a watch on its existence reports its creation. It may have been created
            # meanwhile: then the response is a stat, and the children must be watched.
            self._client.submit_exists(self.path, fired).add_done_callback(self._existence_read)

    def _existence_read(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None and done.result() is not None and self._active:
            self.arm_and_call()

    def arm_and_call(self) -> None:
        """Set the watch, then call the callback, so that its reads are sent after the request that sets the watch."""
        if self._active:
            self.arm()
            self._callback()


def _retrieve(done: asyncio.Future[Any]) -> None:
    """Ignore the failure of a request. It is repeated after a reconnection."""
    if not done.cancelled():
        done.exception()
