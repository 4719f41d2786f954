"""Encoders and decoders of the log's files are inverses, and decoders handle any bytes."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import CorruptMessageError
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.checkpoints import MalformedCheckpointError
from odradek.log.epoch_cache import UNDEFINED, EpochCache, EpochEndOffset
from odradek.log.producers.producer_state import ProducerState
from odradek.log.segments.indexes import OffsetIndex, TimeIndex
from odradek.records.v2.batch import TRANSACTIONAL_FLAG, BatchHeader

RELATIVE = st.integers(0, 2**31 - 1)
OFFSET = st.integers(0, 2**63 - 1)
NAMES = st.text("abcXYZ019._-", min_size=1, max_size=20)


@given(st.sets(RELATIVE, max_size=50), st.sets(RELATIVE, max_size=50), RELATIVE)
def test_offset_index(offsets: set[int], positions: set[int], asked: int) -> None:
    entries = list(zip(sorted(offsets), sorted(positions), strict=False))
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    decoded = OffsetIndex.decode(index.encode())
    assert decoded is not None
    assert decoded.encode() == index.encode()
    assert decoded.floor_position(asked) == max((p for o, p in entries if o <= asked), default=0)
    decoded.truncate(asked)
    assert len(decoded) == sum(o < asked for o, _ in entries)


@given(st.lists(st.tuples(st.integers(0, 2**62), RELATIVE), max_size=50), st.integers(0, 2**62))
def test_time_index(entries: list[tuple[int, int]], asked: int) -> None:
    entries.sort(key=lambda entry: entry[1])
    index = TimeIndex()
    for timestamp, offset in entries:
        index.append_if_later(timestamp, offset)
    decoded = TimeIndex.decode(index.encode())
    assert decoded is not None
    assert decoded.encode() == index.encode()
    found = decoded.floor(asked)
    below = [timestamp for timestamp, _ in entries if timestamp <= asked]
    # Entries whose timestamp does not rise are not stored, so the lower bound is a running maximum.
    running = [t for place, (t, _) in enumerate(entries) if t > max([e[0] for e in entries[:place]], default=-1)]
    assert (found.timestamp if found else None) == max((t for t in running if t <= asked), default=None)
    assert found is None or found.timestamp <= asked
    assert found is not None or not below or min(running) > asked


@given(st.binary(max_size=200))
def test_decoders_survive_anything(content: bytes) -> None:
    OffsetIndex.decode(content)
    TimeIndex.decode(content)
    with suppress(CorruptMessageError):
        ProducerState.decode(content, 0)
    for decode in (checkpoints.decode_offsets, checkpoints.decode_epochs, checkpoints.decode_partition_metadata):
        with suppress(MalformedCheckpointError):
            decode(content, "path")


@given(st.dictionaries(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), OFFSET, max_size=20))
def test_offset_checkpoints(offsets: dict[TopicPartition, int]) -> None:
    assert checkpoints.decode_offsets(checkpoints.encode_offsets(offsets), "x") == offsets


@given(st.uuids())
def test_partition_metadata(topic_id: UUID) -> None:
    assert checkpoints.decode_partition_metadata(checkpoints.encode_partition_metadata(topic_id), "x") == topic_id


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=15), st.integers(-1, 25))
def test_epochs_against_a_plain_list(assignments: list[tuple[int, int]], asked: int) -> None:
    """The reference keeps every assignment that no later one contradicts, and scans all of them."""
    cache = EpochCache()
    entries: list[tuple[int, int]] = []
    for epoch, start in assignments:
        cache.assign(epoch, start)
        if not (entries and entries[-1][0] == epoch and entries[-1][1] <= start):
            entries = [entry for entry in entries if entry[0] < epoch and entry[1] < start] + [(epoch, start)]
    assert cache.entries() == entries
    assert EpochCache(checkpoints.decode_epochs(checkpoints.encode_epochs(entries), "x")).entries() == entries
    log_end = 1000
    higher = [entry for entry in entries if entry[0] > asked]
    if asked < 0 or not entries or asked > entries[-1][0]:
        expected = UNDEFINED
    elif asked == entries[-1][0]:
        expected = EpochEndOffset(asked, log_end)
    else:
        floor = [entry[0] for entry in entries if entry[0] <= asked]
        expected = EpochEndOffset(floor[-1] if floor else asked, higher[0][1])
    assert cache.end_offset_for(asked, log_end) == expected


@st.composite
def headers(draw: st.DrawFn) -> BatchHeader:
    count = draw(st.integers(1, 1000))
    timestamp = draw(st.integers(-1, 2**50))
    return BatchHeader(
        base_offset=0,
        batch_length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=draw(st.sampled_from([0, TRANSACTIONAL_FLAG])),
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=draw(st.integers(0, 5)),
        producer_epoch=draw(st.integers(0, 2**15 - 1)),
        base_sequence=draw(st.integers(0, 2**31 - 1)),
        record_count=count,
    )


@given(st.lists(headers(), max_size=10))
def test_snapshots(batches: list[BatchHeader]) -> None:
    state = ProducerState()
    offset = 0
    for header in batches:
        state.record(header, offset)
        offset += header.record_count
    decoded = ProducerState.decode(state.encode(), offset)
    assert decoded.active() == state.active()
    assert decoded.first_unstable_offset(offset) == state.first_unstable_offset(offset)
    assert decoded.encode() == state.encode()
    last = {header.producer_id: header for header in batches}
    for header in last.values():
        # The newest batch of each producer is still recognized as a duplicate.
        assert decoded.check([header], sequenced=True) is not None
