"""The records between any two states of a consumer group, and damaged records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import MalformedFrameError
from odradek.coordinator.coordinator_ports import KeyValue
from odradek.coordinator.groups.consumer.consumer_record_values import ConsumerRecordType
from odradek.coordinator.groups.consumer.consumer_records import (
    ConsumerRecordKey,
    StateBuilder,
    changes,
    encode_consumer_key,
)
from odradek.coordinator.groups.consumer.consumer_values import NEW_GROUP, ConsumerGroupImage
from odradek.coordinator.groups.group_records import decode_key
from odradek_testkit.consumer_groups.consumer_states import random_state
from odradek_testkit.consumer_groups.strict_replay import StrictReplay

RANDOMS = st.integers(0, 1 << 32).map(Random)


def decoded(records: list[KeyValue]) -> Iterator[tuple[ConsumerRecordKey, bytes | None]]:
    for encoded, value in records:
        key = decode_key(encoded)
        assert isinstance(key, ConsumerRecordKey)
        assert key.group == "g"
        yield key, value


def apply(builder: StateBuilder, records: list[KeyValue]) -> ConsumerGroupImage:
    for key, value in decoded(records):
        builder.apply(key, value)
    return builder.build()


@given(RANDOMS)
def test_changes_lead_from_one_state_to_the_other(random: Random) -> None:
    before, after = random_state(random), random_state(random)
    builder = StateBuilder()
    assert apply(builder, changes("g", NEW_GROUP, before)) == before
    assert apply(builder, changes("g", before, after)) == after
    assert apply(builder, changes("g", after, NEW_GROUP)) == NEW_GROUP
    assert builder.is_empty


@given(RANDOMS)
def test_nothing_is_written_without_a_change(random: Random) -> None:
    state = random_state(random)
    assert changes("g", state, apply(StateBuilder(), changes("g", NEW_GROUP, state))) == []


@given(RANDOMS)
def test_records_are_independent_of_each_other(random: Random) -> None:
    """As compaction keeps the newest record of each key and its place, records may be in any order."""
    before, after = random_state(random), random_state(random)
    newest = dict([*changes("g", NEW_GROUP, before), *changes("g", before, after)])
    records = list(newest.items())
    random.shuffle(records)
    assert apply(StateBuilder(), records) == after


@given(RANDOMS)
def test_a_failed_change_can_be_undone_without_knowing_whether_it_was_written(random: Random) -> None:
    state, failed = random_state(random), random_state(random)
    start = changes("g", NEW_GROUP, state)
    for written in ([], changes("g", state, failed)):
        assert apply(StateBuilder(), [*start, *written, *changes("g", failed, state)]) == state


@given(RANDOMS)
def test_kafka_can_replay_each_record_after_the_ones_before(random: Random) -> None:
    before, after = random_state(random), random_state(random)
    model = StrictReplay()
    for records in (changes("g", NEW_GROUP, before), changes("g", before, after), changes("g", after, NEW_GROUP)):
        for key, value in decoded(records):
            model.apply(key, value)


@given(RANDOMS, st.data())
def test_damaged_records_change_nothing_or_are_refused(random: Random, data: st.DataObject) -> None:
    for encoded, value in changes("g", NEW_GROUP, random_state(random)):
        damaged = bytearray(data.draw(st.sampled_from([encoded, value or b"\0"])))
        for _ in range(data.draw(st.integers(0, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
        with suppress(MalformedFrameError):
            decode_key(cut)
        key = decode_key(encoded)
        assert isinstance(key, ConsumerRecordKey)
        builder = StateBuilder()
        try:
            builder.apply(key, cut)
        except MalformedFrameError:
            assert builder.is_empty


@given(st.sampled_from(ConsumerRecordType), st.text(max_size=20), st.text(max_size=20))
def test_keys(record_type: ConsumerRecordType, group: str, name: str) -> None:
    key = ConsumerRecordKey(record_type, group, name if "MEMBER" in record_type.name or record_type == 16 else "")
    assert decode_key(encode_consumer_key(key)) == key
