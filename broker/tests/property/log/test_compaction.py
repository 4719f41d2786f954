"""Compares a log after any number of compactions with a dict of its records, and checks Kafka's guarantees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.compression import Codec
from odradek.log.segments.segment import SNAPSHOT_SUFFIX
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import check_entry, iterate_entries, iterate_records
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.record import Record
from odradek.records.v2.transactions import marker_batch
from odradek_testkit.cleaning import LIMIT, compact, settle
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import RecordingHost, open_log, roll, small_segments
from odradek_testkit.loop import ManualClock

RETENTION_MS = 1000
KEYS = [b"", b"a", b"b", b"key-of-15-bytes", b"key-of-16-bytes!", b"a key that is longer than a digest 1", b"x" * 40]
TRANSACTIONAL, IDEMPOTENT = (7, 8), (3, 4)

pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=30)), min_size=1, max_size=6)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD])


@dataclass(slots=True)
class Written:
    """An appended record."""

    key: bytes
    value: bytes | None
    timestamp: int
    written_ms: int
    producer_id: int = -1
    aborted: bool = False
    open: bool = False


class Compacted:
    """A log and a dict: `written` maps offsets to the appended records; markers have no entry."""

    def __init__(self, *, segment_bytes: int, interval: int, append_time: bool) -> None:
        self.files = MemoryFiles()
        self.clock = ManualClock()
        self.files.wall_ms = self.clock.wall_ms
        self.host = RecordingHost(self.files)
        self.written: dict[int, Written] = {}
        self.sequences = dict.fromkeys((*TRANSACTIONAL, *IDEMPOTENT), 0)
        self.clean_to = 0
        self.config = small_segments(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            cleanup_policy=("compact",),
            delete_retention_ms=RETENTION_MS,
            message_timestamp_type="LogAppendTime" if append_time else "CreateTime",
        )
        self.log = open_log(self.files, self.clock, host=self.host, config=self.config)

    # What happens to the log

    def _batch(self, records: list[tuple[bytes, bytes | None]], codec: Codec, producer_id: int) -> None:
        builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
        self.clock.advance(7)
        now_ms = self.clock.wall_ms()
        for place, (key, value) in enumerate(records):
            builder.append(key, value, timestamp_ms=now_ms - 3 * place, headers=[("h", b"1")] if place % 2 else ())
        sequence = self.sequences.get(producer_id, -1)
        content = builder.build(
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=producer_id in TRANSACTIONAL,
        )
        info = self.log.append_as_leader(memoryview(bytearray(content)), leader_epoch=0)
        if producer_id >= 0:
            self.sequences[producer_id] += len(records)
        for place, (key, value) in enumerate(records):
            timestamp = now_ms if info.log_append_time >= 0 else now_ms - 3 * place
            self.written[info.first_offset + place] = Written(
                key, value, timestamp, now_ms, producer_id, open=producer_id in TRANSACTIONAL
            )

    def append(self, records: list[tuple[bytes, bytes | None]], codec: Codec, producer_id: int) -> None:
        self._batch(records, codec, producer_id)

    def transaction(
        self,
        first: list[tuple[bytes, bytes | None]],
        between: list[tuple[bytes, bytes | None]],
        kind: ControlType,
        codec: Codec,
        leave_open: int,
    ) -> None:
        """Append two transactions; the second sometimes stays open until the next call."""
        one, other = TRANSACTIONAL
        self._batch(first, codec, one)
        self._batch(between, codec, other)
        self._batch(between[:1], codec, one)
        self._end_transaction(one, kind)
        if leave_open:
            self._end_transaction(other, ControlType.ABORT if leave_open % 2 else ControlType.COMMIT)

    def _end_transaction(self, producer_id: int, kind: ControlType) -> None:
        marker = marker_batch(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=self.clock.wall_ms()
        )
        self.log.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        for record in self.written.values():
            if record.open and record.producer_id == producer_id:
                record.open = False
                record.aborted = kind is ControlType.ABORT

    def append_old(self, records: list[tuple[bytes, bytes | None]], magic: int, codec: Codec) -> None:
        self.clock.advance(7)
        now_ms = self.clock.wall_ms()
        first = self.log.log_end_offset
        timestamp = now_ms if magic else -1
        messages = [(first + place, timestamp, key, value) for place, (key, value) in enumerate(records)]
        self.log.append_as_follower(memoryview(bytearray(encode_set(messages, magic=magic, codec=codec))))
        for offset, _, key, value in messages:
            self.written[offset] = Written(key, value, timestamp, now_ms)

    def compact(self, keys: int, read_bytes: int) -> None:
        roll(self.log)
        settle(self.log)
        if not self.log.cleanable():
            return
        sequences = self._producers()
        result = compact(
            self.files, self.log, self.clock, self.clean_to, map_bytes=24 * keys, load_factor=1.0, read_bytes=read_bytes
        )
        end = self.log.cleanable()[-1].next_offset
        assert self.clean_to < result.end_offset <= end or self.clean_to >= end
        if keys == 1000:
            assert result.end_offset == max(end, self.clean_to)
        self.clean_to = result.end_offset
        settle(self.log)
        assert self._producers() == sequences
        self._check_clean_part()
        self._check()

    def _check(self) -> None:
        self._offsets_and_order_are_kept()
        self._nothing_is_lost_that_is_not_to_go()
        self._consumers_see_the_same_state()

    def reopen(self) -> None:
        settle(self.log)
        producers = self._producers()
        recovery_point = self.log.recovery_point
        self.log.abandon()
        # Without snapshots, the producers must be found in the records that compaction has kept.
        for name in self.files.list(self.log.directory):
            if name.endswith(SNAPSHOT_SUFFIX):
                self.files.remove(f"{self.log.directory}/{name}")
        self.log = open_log(self.files, self.clock, host=self.host, config=self.config, recovery_point=recovery_point)
        self.log.high_watermark = self.log.log_end_offset
        assert self._producers() == producers
        self._check()

    def _producers(self) -> dict[int, tuple[int, int]]:
        return {each.producer_id: (each.producer_epoch, each.last_sequence) for each in self.log.active_producers()}

    # What must hold

    def _entries(self) -> list[tuple[int, int, bool, list[Record]]]:
        """Check each entry; yield its first and last offset, whether it is a marker, and its records."""
        found = []
        for segment in self.log.segments:
            content = segment.file.pread(segment.size, 0)
            for position, header in iterate_entries(content):
                check_entry(content, position, header)
                records = list(iterate_records(content, position, header, limit=LIMIT))
                first = records[0].offset if header.magic < 2 else header.base_offset
                found.append((first, header.last_offset, header.is_control, records))
        return found

    def _kept(self) -> dict[int, Record]:
        return {
            record.offset: record for _, _, control, records in self._entries() if not control for record in records
        }

    def _visible(self) -> dict[int, Record]:
        """Return the records that a read_committed consumer gets up to the last stable offset."""
        log = self.log
        unstable = log.first_unstable_offset
        end = log.log_end_offset if unstable is None else unstable
        waiting = sorted(log.aborted_transactions(log.log_start_offset, end), key=lambda each: each[1])
        aborted: set[int] = set()
        visible = {}
        for segment in log.segments:
            content = segment.file.pread(segment.size, 0)
            for position, header in iterate_entries(content):
                while waiting and waiting[0][1] <= header.last_offset:
                    aborted.add(waiting.pop(0)[0])
                if header.is_control:
                    kinds = [record.key for record in iterate_records(content, position, header, limit=LIMIT)]
                    if kinds and kinds[0] is not None and kinds[0][3] == ControlType.ABORT:
                        aborted.discard(header.producer_id)
                elif header.producer_id not in aborted and header.last_offset < end:
                    for record in iterate_records(content, position, header, limit=LIMIT):
                        visible[record.offset] = record
        return visible

    @staticmethod
    def _fold(records: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
        state: dict[bytes | None, bytes] = {}
        for _, key, value in sorted(records):
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        return state

    def _offsets_and_order_are_kept(self) -> None:
        end = -1
        for first, last, _, records in self._entries():
            assert end < first <= last
            end = last
            for record in records:
                assert first <= record.offset <= last
        for offset, record in self._kept().items():
            known = self.written[offset]
            assert (record.key, record.value, record.timestamp) == (known.key, known.value, known.timestamp)

    def _nothing_is_lost_that_is_not_to_go(self) -> None:
        kept = self._kept()
        newest: dict[bytes, int] = {}
        for offset, record in self.written.items():
            if not record.aborted:
                newest[record.key] = offset
        for offset, record in self.written.items():
            if (offset >= self.clean_to and not record.aborted) or (
                newest.get(record.key) == offset
                and (record.value is not None or self.clock.wall_ms() < record.written_ms + RETENTION_MS)
            ):
                assert offset in kept

    def _consumers_see_the_same_state(self) -> None:
        settle(self.log)
        unstable = self.log.first_unstable_offset
        end = self.log.log_end_offset if unstable is None else unstable
        expected = self._fold(
            [(at, each.key, each.value) for at, each in self.written.items() if not each.aborted and at < end]
        )
        visible = [(record.offset, record.key, record.value) for record in self._visible().values()]
        assert self._fold(visible) == expected
        # With read_uncommitted, only aborted records may be missing after the newest committed one of a key.
        for offset in self._visible():
            assert not self.written[offset].aborted

    def _check_clean_part(self) -> None:
        """Below the clean offset each key exists once, aborted records are removed, and every offset can be read."""
        unstable = self.log.first_unstable_offset
        keys: dict[bytes | None, int] = {}
        last_of_range = self.log.cleanable()[-1].next_offset - 1
        for offset, record in self._kept().items():
            if offset < self.clean_to:
                assert record.key not in keys
                keys[record.key] = offset
                assert not self.written[offset].aborted or offset == last_of_range
        assert unstable is None or unstable >= self.clean_to
        for offset in range(self.log.log_start_offset, self.log.log_end_offset):
            content = self.log.read(offset, max_bytes=1 << 20).load()
            _, header = next(iterate_entries(content))
            assert header.last_offset >= offset
        for record in self._kept().values():
            if record.timestamp >= 0:
                found = self.log.offset_for_timestamp(record.timestamp)
                assert found is not None
                assert found.timestamp >= record.timestamp


appends = st.tuples(st.just(Compacted.append), pairs, codecs, st.sampled_from([-1, -1, *IDEMPOTENT]))
transactions = st.tuples(
    st.just(Compacted.transaction), pairs, pairs, st.sampled_from(ControlType), codecs, st.sampled_from([0, 1, 1, 2])
)
old_appends = st.tuples(
    st.just(Compacted.append_old), pairs, st.sampled_from([0, 1]), st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4])
)
compactions = st.tuples(
    st.just(Compacted.compact), st.sampled_from([1, 2, 3, 1000, 1000, 1000]), st.sampled_from([64, 500, 1 << 16])
)
rounds = st.tuples(
    st.lists(st.one_of(appends, transactions, old_appends), min_size=1, max_size=5),
    st.lists(compactions, min_size=1, max_size=3),
    st.sampled_from([1, RETENTION_MS, 5 * RETENTION_MS]),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(st.integers(800, 2500), st.sampled_from([0, 300]), st.booleans(), st.lists(rounds, min_size=1, max_size=4))
def test_a_compacted_log_matches_a_dict(
    segment_bytes: int,
    interval: int,
    append_time: bool,
    rounds: list[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], int, bool]],
) -> None:
    state = Compacted(segment_bytes=segment_bytes, interval=interval, append_time=append_time)
    for writes, passes, wait_ms, reopens in rounds:
        for act, *arguments in (*writes, *passes):
            act(state, *arguments)
        state.clock.advance(wait_ms)
        if reopens:
            state.reopen()
