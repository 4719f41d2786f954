"""The sealed segments that are loaded: their files are open and their indexes are in memory.

All logs of a broker share one cache (`LogContext.segment_cache`), so that consumers that read old segments of many logs
stay within one bound. `SegmentList` adds the segments that it reads and removes those that leave its log. Invariants:
no active segment is in the cache; the bounds hold after every call, except that the segment used last always stays.

Most calls come from the event loop. Threads close logs and fill future logs, so a lock protects the totals. A segment
may be released while it is read: a reader keeps its own references to the file and to the indexes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Final

from odradek.log.segments.entries import SCAN_BYTES
from odradek.log.segments.segment import Segment

MOST_BYTES: Final = 64 << 20
MOST_FILES: Final = 1024


class SegmentCache:
    """The loaded sealed segments of all logs; the least recently used are released first."""

    __slots__ = ("_lock", "_sizes", "_total", "max_bytes", "max_files", "scratch")

    def __init__(self, *, max_bytes: int = MOST_BYTES, max_files: int = MOST_FILES) -> None:
        """Create an empty cache."""
        self.max_bytes = max_bytes
        """Maximum memory of the loaded indexes. A new value applies at the next use of a segment."""
        self.max_files = max_files
        """Maximum number of open files, not counting those that only a reader still holds."""
        self.scratch: Final = bytearray(SCAN_BYTES)
        """Buffer for lookups on the event loop, which reads one segment at a time."""
        # The most recently used segment is the last one.
        self._sizes: OrderedDict[Segment, int] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._sizes)

    def __contains__(self, segment: Segment) -> bool:
        """Whether a segment is in the cache."""
        return segment in self._sizes

    @property
    def total_bytes(self) -> int:
        """Approximate memory of the loaded files and indexes."""
        return self._total

    def use(self, segment: Segment) -> None:
        """Record that a sealed segment with its loaded indexes is used; release others if a bound is exceeded."""
        size = segment.loaded_bytes
        released = []
        with self._lock:
            sizes = self._sizes
            self._total += size - sizes.pop(segment, 0)
            sizes[segment] = size
            while len(sizes) > 1 and (self._total > self.max_bytes or len(sizes) > self.max_files):
                oldest, oldest_size = sizes.popitem(last=False)
                self._total -= oldest_size
                released.append(oldest)
        for oldest in released:
            oldest.release()

    def forget(self, segments: Iterable[Segment]) -> None:
        """Remove segments that are active, deleted or closed, without releasing them. Ignores other segments."""
        with self._lock:
            for segment in segments:
                self._total -= self._sizes.pop(segment, 0)
