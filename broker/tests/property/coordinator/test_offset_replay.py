"""The replay of the group log by columns gives the same as that record by record, for any mixture of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.compression import Codec
from odradek.coordinator.groups.group_records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.groups.group_replay import Replay
from odradek.records.v2.batch import BatchBuilder, ControlType, stamp
from odradek.records.v2.transactions import marker_batch

NAMES = st.sampled_from(["", "a", "group", "ünï", "x" * 300])
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.builds(
    encode_offset_value,
    st.builds(
        OffsetValue,
        offset=INT64,
        metadata=st.sampled_from(["", "", "", "m", "ünï"]),
        commit_timestamp_ms=st.integers(-1, 3),
        leader_epoch=st.integers(-1, 3),
        expire_timestamp_ms=st.just(-1) | INT64,
    ),
    st.sampled_from([3, 3, 3, None, 0, 1, 2, 4]),
)
KEYS = st.builds(
    encode_offset_key,
    st.builds(OffsetKey, group=NAMES, topic=NAMES, partition=st.integers(0, 2)),
    st.sampled_from([1, 1, 1, 1, 1, 0]),
)
GROUPS = st.tuples(
    st.builds(encode_group_key, st.builds(GroupKey, NAMES)),
    st.none()
    | st.builds(
        encode_group_value,
        st.builds(GroupValue, protocol_type=NAMES, generation=st.integers(0, 3), protocol=NAMES, leader=NAMES),
    ),
)
DAMAGED = st.tuples(st.none() | st.binary(max_size=30) | KEYS, st.none() | st.binary(max_size=30))
USUAL = st.tuples(KEYS, VALUES | st.none())
RECORDS = st.one_of(USUAL, USUAL, USUAL, USUAL, GROUPS, DAMAGED)
BATCHES = st.tuples(
    st.one_of(st.lists(USUAL, min_size=1, max_size=12), st.lists(RECORDS, min_size=1, max_size=12)),
    st.sampled_from([-1, -1, -1, -1, 7, 8]),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
)
MARKERS = st.tuples(st.sampled_from(ControlType), st.sampled_from([7, 8]))
LOGS = st.lists(BATCHES | BATCHES | BATCHES | MARKERS, max_size=12)


def log_of(parts: Sequence[Any], offset: int = 0) -> bytes:
    """Return the batches and markers as a log that begins at an offset."""
    log = bytearray()
    for part in parts:
        if isinstance(part[0], ControlType):
            kind, producer_id = part
            batch = marker_batch(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)
            count = 1
        else:
            records, producer_id, codec = part
            builder = BatchBuilder(limit_bytes=1 << 20, codec=codec)
            for key, value in records:
                builder.append(key, value, timestamp_ms=0)
            count = len(records)
            batch = builder.build(producer_id=producer_id, producer_epoch=0, is_transactional=producer_id >= 0)
        stamped = bytearray(batch)
        stamp(stamped, 0, offset, 0)
        log += stamped
        offset += count
    return bytes(log)


def state(replay: Replay) -> dict[str, object]:
    return {
        "groups": replay.groups,
        "offsets": {(group, key): entry for group, offsets in replay.offsets.items() for key, entry in offsets.items()},
        "transactions": {number: offsets for number, offsets in replay.transactions.items() if offsets},
        "skipped": (replay.unknown_keys, replay.unreadable),
    }


@given(LOGS, LOGS)
def test_both_ways_of_replay_agree(first: Sequence[Any], second: Sequence[Any]) -> None:
    fast, slow = Replay(), Replay()
    for log in (log_of(first), log_of(second, offset=1_000_000)):
        assert sum(fast.read(log)) == sum(slow.read_singly(log))
    assert state(fast) == state(slow)


@given(st.lists(USUAL, min_size=1, max_size=200), st.integers(1, 7))
def test_long_runs_of_commits(records: Sequence[Any], per_batch: int) -> None:
    batches = [(records[at : at + per_batch], -1, Codec.NONE) for at in range(0, len(records), per_batch)]
    log = log_of(batches)
    fast, slow = Replay(), Replay()
    list(fast.read(log))
    list(slow.read_singly(log))
    assert state(fast) == state(slow)
