"""What a consumer does around a rebalance: commits, calls of the application's listener, changes of the assignment.

`consumer` creates it, and the group member calls it; `member_contract` has the rules. Invariant: an event begins only
while the application is in a method of the consumer, and no records are returned until it has ended. The application
has then processed all records up to the positions, so they can be committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Protocol

from odradek.base.types import TopicPartition
from odradek.client.consumer.fetcher import Fetcher


class RebalanceListener(Protocol):
    """Callbacks of the application before and after a rebalance, called inside the methods of the consumer.

    With an eager assignor, all partitions are revoked before a rebalance and assigned again after it. With
    `cooperative-sticky`, both methods get only the partitions that move (KIP-429).

    A listener can have a third method, `async on_partitions_lost(partitions)`. It is called instead of
    `on_partitions_revoked` if the partitions may belong to other members already, because the group has removed this
    one. Without the method, `on_partitions_revoked` is called for these partitions too, as in the Java client; a commit
    in it then raises `UnknownMemberIdError`.
    """

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before the consumer gives up these partitions. Commit the processed records here."""
        ...

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when the consumer has received these partitions. `seek` can change their positions here."""
        ...


class RebalanceEvents:
    """The events of a consumer's member."""

    def __init__(self, fetcher: Fetcher, commit: Callable[[Sequence[TopicPartition]], Awaitable[None]]) -> None:
        """`commit` commits the positions of partitions if commits are automatic, and raises no protocol error."""
        self._fetcher: Final = fetcher
        self._commit: Final = commit
        self._calls = 0
        self._called = asyncio.Event()
        self._is_active = False
        self.listener: RebalanceListener | None = None
        """The listener of the application."""

    @contextmanager
    def in_call(self) -> Iterator[None]:
        """Let events begin, because the application is in a method of the consumer."""
        self._calls += 1
        self._called.set()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._called.clear()

    @property
    def is_active(self) -> bool:
        """Whether an event runs or waits for a call of the application. No records may be returned until it ends."""
        return self._is_active

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit, call the listener and drop the partitions."""
        async with self._event():
            await self._commit(partitions)
            if self.listener is not None:
                await self.listener.on_partitions_revoked(partitions)
            self._drop(partitions)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Call the listener and drop the partitions."""
        async with self._event():
            if self.listener is not None:
                # The method is optional, so that listeners without it continue to work.
                lost = getattr(self.listener, "on_partitions_lost", self.listener.on_partitions_revoked)
                await lost(partitions)
            self._drop(partitions)

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Add the partitions and call the listener."""
        async with self._event():
            self._fetcher.assign([*self._fetcher.states, *partitions])
            if self.listener is not None:
                await self.listener.on_partitions_assigned(partitions)

    @asynccontextmanager
    async def _event(self) -> AsyncIterator[None]:
        self._is_active = True
        try:
            while not self._calls:
                await self._called.wait()
            yield
        finally:
            self._is_active = False
            self._fetcher.interrupt()

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        dropped = set(partitions)
        self._fetcher.assign([partition for partition in self._fetcher.states if partition not in dropped])
