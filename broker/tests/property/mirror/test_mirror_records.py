"""Records of the mirror: what is written is read again, and nothing else is accepted or fails in another way."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.mirror.following.mirrored_topics import MirroredTopic
from odradek.mirror.mm2_records import Checkpoint, Heartbeat, OffsetSync
from odradek.mirror.offset_translation import OffsetRun
from odradek.security.acls.model import AclOperation, AclPermission, AclRule
from odradek.security.principals import Principal

LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
PARTITIONS = st.builds(TopicPartition, TEXTS, st.integers(-(2**31), 2**31 - 1))
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
IDS = st.builds(UUID, int=st.integers(0, 2**128 - 1))
RULES = st.builds(
    AclRule,
    st.builds(Principal, NAMES.filter(lambda text: ":" not in text), NAMES),
    st.sampled_from(AclPermission),
    st.sampled_from(AclOperation),
    TEXTS,
)
RECORDS = st.one_of(
    st.builds(OffsetSync, PARTITIONS, LONGS, LONGS),
    st.builds(Checkpoint, TEXTS, PARTITIONS, LONGS, LONGS, TEXTS),
    st.builds(Heartbeat, TEXTS, TEXTS, LONGS),
    st.builds(
        MirroredTopic,
        name=TEXTS,
        source=TEXTS,
        source_topic=TEXTS,
        source_id=IDS,
        target_id=st.none() | IDS,
        origins=st.lists(TEXTS, max_size=3).map(tuple),
        rules=st.frozensets(RULES, max_size=3),
    ),
)


@given(record=RECORDS)
def test_a_record_is_read_as_it_was_written(record: OffsetSync | Checkpoint | Heartbeat | MirroredTopic) -> None:
    assert type(record).decode(record.key(), record.value()) == record


@given(
    record=RECORDS,
    key=st.binary(max_size=60),
    value=st.binary(max_size=60),
    cut=st.integers(0, 60),
    header=st.binary(max_size=30),
)
def test_other_bytes_give_only_one_error(
    record: OffsetSync | Checkpoint | Heartbeat | MirroredTopic, key: bytes, value: bytes, cut: int, header: bytes
) -> None:
    whole = record.value()
    for some_key, some_value in ((key, value), (record.key(), value), (record.key(), whole[:cut] + value)):
        try:
            type(record).decode(some_key, some_value)
        except ConfigError as error:
            assert str(error)
    try:
        OffsetRun.from_record(1, 2, header)
    except ConfigError as error:
        assert str(error)
