"""The requests that a consumer group expects of its classic members within their rebalance timeouts.

A member whose Heartbeat got REBALANCE_IN_PROGRESS must send JoinGroup, and one that has joined must send SyncGroup.
Members that do not are removed, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from odradek.base.errors import ProtocolError
from odradek.base.ports import Clock, Timer
from odradek.coordinator.groups.consumer.consumer_values import ConsumerMember

logger = logging.getLogger(__name__)

RETRY_MS: Final = 1000.0
"""Pause before a member whose removal could not be stored is removed again."""

RemoveMember = Callable[
    [str, Callable[[ConsumerMember], bool], Callable[[ProtocolError | None], None]],
    None,
]
"""Removes a member if the second argument says that it is still due. The third one gets None, or the error."""


class Awaited(Enum):
    """A request that a member must send."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"


class ClassicWaits:
    """The waits for the members of one group."""

    def __init__(self, group_id: str, clock: Clock, remove: RemoveMember) -> None:
        """`remove` is called when a wait ends without the request."""
        self._group_id: Final = group_id
        self._clock: Final = clock
        self._remove: Final = remove
        self._timers: Final[dict[tuple[str, Awaited], Timer]] = {}

    def start(self, member_id: str, awaited: Awaited, timeout_ms: float) -> None:
        """Wait for a request of a member, unless the group does already."""
        key = (member_id, awaited)
        if key not in self._timers:
            self._timers[key] = self._clock.call_later(timeout_ms, partial(self._due, key))

    def end(self, member_id: str, awaited: Awaited) -> None:
        """End a wait, because the request has arrived."""
        timer = self._timers.pop((member_id, awaited), None)
        if timer is not None:
            timer.cancel()

    def forget(self, member_id: str) -> None:
        """End all waits for a member that was removed."""
        for awaited in Awaited:
            self.end(member_id, awaited)

    def close(self) -> None:
        """End all waits. Idempotent."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: tuple[str, Awaited]) -> None:
        member_id, awaited = key
        timer = self._timers[key]
        logger.info("group %r: member %s did not send %s in time", self._group_id, member_id, awaited.value)

        def is_overdue(member: ConsumerMember) -> bool:
            return member.classic is not None and self._timers.get(key) is timer

        def removed(outcome: ProtocolError | None) -> None:
            if self._timers.get(key) is timer:
                del self._timers[key]
                if outcome is not None:
                    self.start(member_id, awaited, RETRY_MS)

        self._remove(member_id, is_overdue, removed)
