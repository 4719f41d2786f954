"""The consumer protocol: round trips, comparison with the general codec, and damaged bytes."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import MalformedFrameError
from odradek.base.types import TopicPartition
from odradek.client.consumer.group_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.protocol.codec import encode_struct
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

names = st.text("ab-é", min_size=1, max_size=5)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=6, unique=True).map(
    lambda found: tuple(sorted(found))
)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names, max_size=4).map(tuple),
    user_data=st.none() | st.binary(max_size=4),
    owned=partitions,
    generation_id=st.integers(-1, 2**31 - 1),
    rack_id=st.none() | names,
)


def known_in(subscription: Subscription, version: int) -> Subscription:
    return Subscription(
        topics=subscription.topics,
        user_data=subscription.user_data,
        owned=subscription.owned if version >= 1 else (),
        generation_id=subscription.generation_id if version >= 2 else -1,
        rack_id=subscription.rack_id if version >= 3 else None,
    )


def by_codec(message_type: type[Any], version: int, message: dict[str, Any]) -> bytes:
    return version.to_bytes(2, "big") + encode_struct(message_type, version, message)


def grouped(found: tuple[TopicPartition, ...]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partitions": [partition for _, partition in group]}
        for topic, group in groupby(found, key=lambda partition: partition.topic)
    ]


@given(subscription=subscriptions, version=st.integers(0, 3))
def test_subscriptions(subscription: Subscription, version: int) -> None:
    encoded = encode_subscription(subscription, version)
    assert decode_subscription(encoded) == known_in(subscription, version)
    message: dict[str, Any] = {"topics": subscription.topics, "user_data": subscription.user_data}
    if version >= 1:
        message["owned_partitions"] = grouped(subscription.owned)
    if version >= 2:
        message["generation_id"] = subscription.generation_id
    if version >= 3:
        message["rack_id"] = subscription.rack_id
    assert encoded == by_codec(ConsumerProtocolSubscription, version, message)
    # A newer version only adds at the end.
    newer = (9).to_bytes(2, "big") + encode_subscription(subscription, 3)[2:] + b"more"
    assert decode_subscription(newer) == subscription


@given(found=partitions, version=st.integers(0, 3))
def test_assignments(found: tuple[TopicPartition, ...], version: int) -> None:
    encoded = encode_assignment(found, version)
    assert decode_assignment(encoded) == found
    message = {"assigned_partitions": grouped(found), "user_data": None}
    assert encoded == by_codec(ConsumerProtocolAssignment, version, message)
    assert decode_assignment(b"") == ()


def test_known_bytes() -> None:
    """Written out by hand from the definitions, so that they do not depend on the codec."""
    subscription = Subscription(topics=("t",), owned=(TopicPartition("t", 1),), generation_id=5, rack_id="r")
    data = b"\0\3" + b"\0\0\0\1\0\1t" + b"\xff\xff\xff\xff\0\0\0\1\0\1t\0\0\0\1\0\0\0\1" + b"\0\0\0\5" + b"\0\1r"
    assert encode_subscription(subscription) == data
    assert decode_subscription(data) == subscription
    assigned = b"\0\0" + b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\1\0\0\0\2" + b"\xff\xff\xff\xff"
    assert encode_assignment([TopicPartition("t", 2), TopicPartition("t", 1)], 0) == assigned
    assert decode_assignment(assigned) == (TopicPartition("t", 1), TopicPartition("t", 2))


@given(subscription=subscriptions, position=st.integers(0, 200), value=st.integers(0, 255), cut=st.integers(0, 200))
def test_damaged_bytes_are_refused_or_read(subscription: Subscription, position: int, value: int, cut: int) -> None:
    damaged = bytearray(encode_subscription(subscription))
    damaged[position % len(damaged)] = value
    for data in (bytes(damaged), bytes(damaged[:cut])):
        for decode in (decode_subscription, decode_assignment):
            try:
                decode(data)
            except MalformedFrameError:
                continue


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff" + b"\0" * 12])
def test_a_missing_or_negative_version_is_refused(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with pytest.raises(MalformedFrameError, match="consumer protocol"):
            decode(data)
