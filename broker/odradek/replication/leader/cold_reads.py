"""Lookups for fetches whose records are not in memory.

A fetch does not wait for them while other partitions have records: `reader` answers without the cold partition, and
the lookup continues, so that the client's next fetch finds its result. A fetch without any records waits in the
purgatory, like one for which no records exist yet; `on_ready` checks it when a lookup ends.

Invariant: at most one lookup of an offset of a segment runs at a time, however often it is requested.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from odradek.base.errors import KafkaStorageError, ProtocolError
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.log.lookups import LogLookups
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import Segment
from odradek.log.segments.segment_lookups import NotInMemoryError, SegmentLookup

COLD_WAIT_MS: Final = 1_000
"""A fetch whose records all have to be read from a disk waits at least as long for them, even if its own maximum is
shorter: an empty answer to a client that does not wait could look like the end of the log."""

MOST_FAILURES: Final = 64
"""Maximum number of errors that are kept for the next fetch of the same offset."""

_Key = tuple[Segment, int | None]

logger = logging.getLogger(__name__)


class ColdReads:
    """The lookups that run for fetches."""

    def __init__(self, lookups: LogLookups, on_ready: Callable[[TopicPartition], None]) -> None:
        """`on_ready` is called after each lookup, whether or not it succeeded."""
        self.lookups: Final = lookups
        self._on_ready: Final = on_ready
        self._running: Final[dict[_Key, SegmentLookup]] = {}
        self._failures: Final[dict[_Key, ProtocolError]] = {}
        self._tasks: Final = TaskOwner()
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of lookups that run."""
        return len(self._running)

    def start(self, log: PartitionLog, missing: NotInMemoryError) -> None:
        """Look up what a read of a log needs, unless this lookup already runs."""
        key = (missing.segment, missing.offset)
        if key not in self._running and not self._is_closed:
            self._running[key] = lookup = SegmentLookup(missing, log.generation)
            self._tasks.spawn(self._run(log, lookup), name=f"lookup-{log.topic_partition}-{missing.offset}")

    async def _run(self, log: PartitionLog, lookup: SegmentLookup) -> None:
        key = (lookup.segment, lookup.offset)
        try:
            await self.lookups.run(log, lookup)
        except (ProtocolError, RuntimeError) as error:  # RuntimeError: the system refuses another thread.
            logger.warning("%s: the lookup of offset %s failed: %s", log.topic_partition, lookup.offset, error)
            self._keep(key, error if isinstance(error, ProtocolError) else KafkaStorageError(str(error)))
        finally:
            del self._running[key]
        self._on_ready(log.topic_partition)

    def _keep(self, key: _Key, error: ProtocolError) -> None:
        if len(self._failures) >= MOST_FAILURES:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = error

    def has_failed(self, missing: NotInMemoryError) -> bool:
        """Whether the last lookup of the same offset failed."""
        return (missing.segment, missing.offset) in self._failures

    def take_failure(self, missing: NotInMemoryError) -> ProtocolError | None:
        """Return the error of the last lookup of the same offset, once; None if there was none."""
        return self._failures.pop((missing.segment, missing.offset), None)

    async def close(self) -> None:
        """Stop waiting for lookups, and start no others. Idempotent."""
        self._is_closed = True
        await self._tasks.close()
