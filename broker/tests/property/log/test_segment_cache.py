"""A log whose cache holds one or two segments gives the same answers as a log whose cache has no bound."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import LOADED_BYTES, Segment
from odradek.log.segments.segment_cache import SegmentCache
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import BatchHeader, ControlType
from odradek_testkit.cleaning import settle, write_cleaned
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import RecordingHost, batch, marker, open_log, roll, small_segments
from odradek_testkit.loop import ManualClock

UNBOUNDED = 1 << 62
SHARE = st.floats(0, 1)


class BoundedAgainstUnbounded(RuleBasedStateMachine):
    """`logs` are the log with the bounded cache and the other one. Each has a disk; every operation is done on both."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.count = 0
        self.logs: tuple[PartitionLog, ...] = ()
        self.cached: set[Segment] = set()
        """The segments in the bounded cache after the last step."""

    @initialize(max_bytes=st.integers(0, 3000), max_files=st.integers(0, 2), interval=st.integers(0, 300))
    def begin(self, max_bytes: int, max_files: int, interval: int) -> None:
        self.config = small_segments(segment_bytes=400, index_interval_bytes=interval, retention_ms=-1)
        self.disks = MemoryFiles(), MemoryFiles()
        self.hosts = tuple(RecordingHost(files) for files in self.disks)
        self.bounded = SegmentCache(max_bytes=max_bytes, max_files=max_files)
        self.unbounded = SegmentCache(max_bytes=UNBOUNDED, max_files=UNBOUNDED)
        self._open()

    def _open(self) -> None:
        start = self.logs[0].log_start_offset if self.logs else 0
        end = self.logs[0].log_end_offset if self.logs else 0
        self.logs = tuple(
            open_log(
                files,
                self.clock,
                host=host,
                config=self.config,
                clean=True,
                recovery_point=end,
                log_start_offset=start,
                segment_cache=cache,
            )
            for files, host, cache in zip(self.disks, self.hosts, (self.bounded, self.unbounded), strict=True)
        )

    def _offset(self, share: float) -> int:
        log = self.logs[0]
        return log.log_start_offset + round((log.log_end_offset - log.log_start_offset) * share)

    # Changes

    @rule(count=st.integers(1, 4), size=st.integers(0, 150))
    def append(self, count: int, size: int) -> None:
        for _ in range(count):
            self.clock.advance(10)
            self.count += 1
            records = bytes(batch(b"%d:" % self.count + b"x" * size, timestamp_ms=self.clock.wall_ms()))
            for log in self.logs:
                log.append_as_leader(memoryview(bytearray(records)), leader_epoch=0)

    @rule()
    def abort_a_transaction(self) -> None:
        now_ms = self.clock.wall_ms()
        for log in self.logs:
            known = next((one.last_sequence for one in log.active_producers()), -1)
            records = batch(
                b"aborted",
                producer_id=1,
                producer_epoch=0,
                base_sequence=known + 1,
                is_transactional=True,
                timestamp_ms=now_ms,
            )
            log.append_as_leader(records, leader_epoch=0)
            ended = marker(ControlType.ABORT, producer_id=1, timestamp_ms=now_ms)
            log.append_as_leader(ended, leader_epoch=0, origin=AppendOrigin.COORDINATOR)

    @rule()
    def roll(self) -> None:
        for log in self.logs:
            roll(log)

    @rule()
    def flush(self) -> None:
        for log in self.logs:
            settle(log)

    @rule(share=SHARE)
    def truncate(self, share: float) -> None:
        offset = self._offset(share)
        for log in self.logs:
            log.truncate_to(offset)

    @rule(share=SHARE)
    def delete_records(self, share: float) -> None:
        offset = self._offset(share**3)
        for log in self.logs:
            log.high_watermark = log.log_end_offset
            log.delete_records_before(offset)
            log.delete_expired(self.clock.wall_ms())

    @precondition(lambda self: len(self.logs[0].segments) > 2)
    @rule(count=st.integers(1, 3), parity=st.integers(0, 1))
    def swap(self, count: int, parity: int) -> None:
        """Replace segments with one that has every second batch that belongs to no transaction."""

        def keeps(header: BatchHeader) -> bool:
            return header.producer_id >= 0 or header.base_offset % 2 == parity

        for log, files in zip(self.logs, self.disks, strict=True):
            settle(log)
            views = log.cleanable()[:count]
            if views and not any(view.has_aborted for view in views):
                assert log.swap_cleaned(write_cleaned(files, log, self.clock, len(views), keeps))

    @rule()
    def reopen(self) -> None:
        for log in self.logs:
            log.close()
        assert len(self.bounded) == len(self.unbounded) == 0
        self._open()

    # Questions

    @rule(shares=st.lists(SHARE, min_size=1, max_size=4), end_share=SHARE, max_bytes=st.integers(0, 500))
    def read(self, shares: list[float], end_share: float, max_bytes: int) -> None:
        """Read at several offsets before the slices are loaded, as a fetch does."""
        bound = self._offset(end_share)
        answers = []
        for log in self.logs:
            slices = [log.read(self._offset(share), max_bytes=max_bytes, max_offset=bound) for share in shares]
            answers.append([(found.position, found.load(), found.first_batch_incomplete) for found in slices])
        assert answers[0] == answers[1]

    @rule(share=SHARE, max_bytes=st.integers(0, 500))
    def read_committed(self, share: float, max_bytes: int) -> None:
        offset = self._offset(share)
        answers = []
        for log in self.logs:
            found = log.read(offset, max_bytes=max_bytes)
            answers.append((found.load(), log.aborted_within(offset, found)))
        assert answers[0] == answers[1]

    @rule(share=SHARE)
    def find_timestamp(self, share: float) -> None:
        wanted = self.clock.wall_ms() - round(10 * self.count * share)
        bounded, unbounded = (log.offset_for_timestamp(wanted) for log in self.logs)
        assert bounded == unbounded

    @invariant()
    def within_bounds(self) -> None:
        if not self.logs:
            return
        log, cache = self.logs[0], self.bounded
        assert len(cache) <= max(cache.max_files, 1)
        assert cache.total_bytes <= cache.max_bytes or len(cache) <= 1
        assert sum(segment in cache for segment in log.segments[:-1]) == len(cache)
        for segment in log.segments[:-1]:
            if segment in self.cached and segment not in cache and segment.indexes_written:
                assert segment.loaded_bytes == LOADED_BYTES, "it left the cache and is still loaded"
        self.cached = {segment for segment in log.segments if segment in cache}

    @invariant()
    def equal(self) -> None:
        if self.logs:
            bounded, unbounded = ((log.log_start_offset, log.log_end_offset, len(log.segments)) for log in self.logs)
            assert bounded == unbounded


BoundedAgainstUnbounded.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBoundedAgainstUnbounded = BoundedAgainstUnbounded.TestCase
