"""The log does what a plain list of records does, whatever is asked of it and however often it is reopened."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.log.epoch_cache import EpochEndOffset
from odradek.log.partition_log import PartitionLog
from odradek.records.batch import iterate
from odradek.records.record import decode_batch
from odradek.testing.disk import MemoryFiles
from odradek.testing.logs import RecordingHost, batch, open_log, small_segments
from odradek.testing.loop import WALL_START_MS, ManualClock


class LogAgainstList(RuleBasedStateMachine):
    """`records` maps offsets to (value, epoch, timestamp); `bases` are the offsets at which batches begin."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.clock = ManualClock()
        self.host = RecordingHost(self.files)
        self.records: dict[int, tuple[bytes, int, int]] = {}
        self.bases: list[int] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.count = 0
        self.config = small_segments()
        self.log: PartitionLog

    @initialize(
        segment_bytes=st.integers(200, 900), interval=st.integers(0, 500), index_bytes=st.sampled_from([40, 100, 4096])
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int) -> None:
        self.config = small_segments(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            retention_ms=-1,
        )
        self.log = open_log(self.files, self.clock, host=self.host, config=self.config)

    def _append_to_list(self, values: list[bytes], timestamp_ms: int) -> None:
        self.bases.append(self.end)
        for place, value in enumerate(values):
            self.records[self.end] = (value, self.epoch, timestamp_ms + place)
            self.end += 1

    @rule(sizes=st.lists(st.integers(0, 25), min_size=1, max_size=3), late_ms=st.integers(0, 50))
    def append(self, sizes: list[int], late_ms: int) -> None:
        self.clock.advance(10)
        self.count += 1
        values = [b"%d:" % self.count + b"x" * size for size in sizes]
        timestamp_ms = self.clock.wall_ms() - late_ms
        info = self.log.append_as_leader(batch(*values, timestamp_ms=timestamp_ms), leader_epoch=self.epoch)
        assert (info.first_offset, info.record_count) == (self.end, len(values))
        self._append_to_list(values, timestamp_ms)

    @rule(gap=st.integers(0, 3), count=st.integers(1, 3))
    def follow(self, gap: int, count: int) -> None:
        """Batches of a leader, perhaps after compaction has left a gap."""
        content = b""
        for _ in range(count):
            self.end += gap
            self.count += 1
            value = b"%d" % self.count
            content += bytes(
                batch(value, base_offset=self.end, leader_epoch=self.epoch, timestamp_ms=self.clock.wall_ms())
            )
            self._append_to_list([value], self.clock.wall_ms())
        if len(content) <= self.config.segment_bytes:
            self.log.append_as_follower(memoryview(content))
        else:
            for position, header in iterate(content):
                self.log.append_as_follower(memoryview(content)[position : position + header.size])

    @rule(by=st.integers(1, 3))
    def new_epoch(self, by: int) -> None:
        self.epoch += by

    @rule()
    def roll(self) -> None:
        self.log.roll_if_due(WALL_START_MS + 10**12)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + round((self.end - self.start) * share)
        self.log.truncate_to(offset)
        if offset < self.end:
            # The batch that holds the offset goes as a whole; in a gap nothing else does.
            holding = [base for base in self.bases if base <= offset and offset in self.records]
            self.end = holding[-1] if holding else offset
            self.bases = [base for base in self.bases if base < self.end]
            self.records = {known: record for known, record in self.records.items() if known < self.end}
            self.start = min(self.start, self.end)

    @rule(offset=st.integers(0, 50))
    def truncate_fully(self, offset: int) -> None:
        self.start = self.end = self.end + offset
        self.log.truncate_fully_and_start_at(self.end)
        self.records, self.bases = {}, []

    @rule(share=st.floats(0, 1))
    def raise_start(self, share: float) -> None:
        self.log.high_watermark = self.end
        self.start += round((self.end - self.start) * share)
        self.log.increment_log_start_offset(self.start)
        self.log.delete_expired(self.clock.wall_ms())

    @rule()
    def flush(self) -> None:
        self.host.run_flushes()
        self.log.flush()

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        """Stopped in order or killed; the checkpoints are those of the last moment."""
        if clean:
            self.log.close()
        self.host.flushes.clear()
        self.log = open_log(
            self.files,
            self.clock,
            host=self.host,
            config=self.config,
            clean=clean,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.log.log_start_offset,
        )
        # A gap at the very end, which a truncation left, is not in the files: as in Kafka, nothing remembers it.
        if self.log.log_end_offset < self.end:
            assert not any(self.log.log_end_offset <= offset for offset in self.records)
            self.end = self.log.log_end_offset

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def find_timestamp(self, data: st.DataObject) -> None:
        wanted = data.draw(st.sampled_from([timestamp for _, _, timestamp in self.records.values()]))
        expected = next(
            (offset for offset, record in self.records.items() if offset >= self.start and record[2] >= wanted), None
        )
        found = self.log.offset_for_timestamp(wanted)
        assert (None if found is None else found.offset) == expected

    @rule(share=st.floats(0, 1), end_share=st.floats(0, 1), max_bytes=st.integers(0, 400))
    def read(self, share: float, end_share: float, max_bytes: int) -> None:
        offset = self.start + round((self.end - self.start) * share)
        bound = self.start + round((self.end - self.start) * end_share)
        found = self.log.read(offset, max_bytes=max_bytes, max_offset=bound)
        content = found.load()
        batches = list(iterate(content))
        whole = [base for base in self.bases if self._last_of(base) >= offset and self._last_of(base) < bound]
        assert [header.base_offset for _, header in batches] == whole[: len(batches)]
        assert bool(batches) == bool(whole)
        if len(batches) > 1:
            assert len(content) <= max_bytes

    def _last_of(self, base: int) -> int:
        following = [other for other in self.bases if other > base]
        bound = following[0] if following else self.end
        return max(offset for offset in self.records if base <= offset < bound)

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        found = {}
        offset = self.start
        while True:
            content = log.read(offset, max_bytes=300).load()
            batches = list(iterate(content))
            if not batches:
                break
            for position, header in batches:
                for record in decode_batch(content, position, header, limit=1 << 20):
                    if record.offset >= self.start:
                        found[record.offset] = (record.value, header.leader_epoch, record.timestamp)
                offset = header.next_offset
        assert found == {offset: record for offset, record in self.records.items() if offset >= self.start}
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        assert all(segment.size <= self.config.segment_bytes for segment in log.segments)
        self._check_epochs(found)

    def _check_epochs(self, found: dict[int, tuple[bytes | None, int, int]]) -> None:
        epochs = sorted({record[1] for record in found.values()})
        if not epochs:
            return
        assert self.log.latest_epoch == epochs[-1]
        for epoch, following in zip(epochs, [*epochs[1:], None], strict=True):
            later = [offset for offset, record in found.items() if record[1] == following]
            end = min(later, default=self.end)
            assert self.log.end_offset_for_epoch(epoch) == EpochEndOffset(epoch, end)


LogAgainstList.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLogAgainstList = LogAgainstList.TestCase
