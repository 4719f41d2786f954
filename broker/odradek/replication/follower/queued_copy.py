"""Records that a follower has fetched and that wait until a thread of the slow log directory has written them.

`fetch_loop` submits one for each partition at a time, and does not fetch the partition meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.base.errors import ProtocolError
from odradek.log.write_group import WriteGroup
from odradek.replication.sessions.follower_session import Followed


class QueuedCopy:
    """The `QueuedAppend` of a follower."""

    __slots__ = ("_failed", "_is_current", "_one", "_records", "_written", "size_bytes")

    def __init__(
        self,
        one: Followed,
        records: bytearray,
        *,
        is_current: Callable[[], bool],
        written: Callable[[], None],
        failed: Callable[[ProtocolError], None],
    ) -> None:
        """`is_current`: whether the leader is still followed in the same epoch. The other two continue the fetch."""
        self._one: Final = one
        self._records: Final = records
        self._is_current: Final = is_current
        self._written: Final = written
        self._failed: Final = failed
        self.size_bytes = len(records)

    @property
    def is_current(self) -> bool:
        """See `QueuedAppend`."""
        return self._is_current()

    def stage(self, group: WriteGroup) -> bool:
        """See `QueuedAppend`."""
        if not self.is_current:
            return False  # another leader or epoch: what this leader has sent must not get into the log
        try:
            self._one.partition.log.append_as_follower(memoryview(self._records), group)
        except ProtocolError as error:
            self.failed(error)
            return False
        return True

    def written(self) -> None:
        """See `QueuedAppend`."""
        self._written()

    def failed(self, error: ProtocolError) -> None:
        """See `QueuedAppend`."""
        if self.is_current:
            self._failed(error)
