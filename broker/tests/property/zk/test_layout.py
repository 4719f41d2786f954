"""Round trips of znodes; arbitrary bytes raise only the decode error."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import Endpoint, TopicPartition
from odradek.zk import layout
from odradek.zk.layout import (
    BrokerRegistration,
    LayoutError,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)

ids = st.integers(0, 2**31 - 1)
id_tuples = st.lists(ids, max_size=4).map(tuple)
names = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=20)
partitions = st.builds(TopicPartition, names, ids)
assignments = st.builds(ReplicaAssignment, replicas=id_tuples, adding=id_tuples, removing=id_tuples)
endpoints = st.builds(
    Endpoint,
    st.text(st.sampled_from("ABC_"), min_size=1, max_size=8),
    st.sampled_from(["host", "10.0.0.1", "::1", "fe80::2"]),
    st.integers(0, 65535),
    st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
)


@given(
    st.builds(
        BrokerRegistration,
        broker_id=ids,
        endpoints=st.lists(endpoints, max_size=3, unique_by=lambda end: end.listener).map(tuple),
        rack=st.none() | st.text(max_size=10),
        jmx_port=st.integers(-1, 65535),
        timestamp_ms=st.integers(0, 2**53),
        features=st.dictionaries(names, st.dictionaries(names, st.integers(0, 99), max_size=3), max_size=2),
    )
)
def test_registrations(registration: BrokerRegistration) -> None:
    assert BrokerRegistration.decode(registration.broker_id, registration.encode()) == registration


@given(names, st.dictionaries(st.integers(0, 10_000), assignments, max_size=6), st.none() | st.uuids())
def test_topics(name: str, parts: dict[int, ReplicaAssignment], topic_id: object) -> None:
    topic = TopicAssignment(topic=name, partitions=parts, topic_id=topic_id)  # type: ignore[arg-type]
    assert TopicAssignment.decode(name, topic.encode()) == topic


@given(st.integers(-(2**63), 2**63 - 1))
def test_consumer_offsets(offset: int) -> None:
    assert layout.decode_consumer_offset("/o", layout.encode_consumer_offset(offset)) == offset


@given(
    partitions,
    st.builds(
        PartitionState,
        leader=st.integers(-1, 2**31 - 1),
        leader_epoch=ids,
        isr=id_tuples,
        controller_epoch=ids,
        recovering=st.booleans(),
    ),
)
def test_states(partition: TopicPartition, state: PartitionState) -> None:
    assert PartitionState.decode(partition, state.encode()) == state


@given(st.dictionaries(st.text(min_size=1), st.text()), st.sets(partitions, max_size=5), ids, st.integers(0, 2**62))
def test_the_last_stage_is_reported(
    config: dict[str, str], wanted: set[TopicPartition], broker: int, first: int
) -> None:
    assert layout.decode_config("/c", layout.encode_config(config)) == config
    assert layout.decode_partitions("/p", layout.encode_partitions(wanted)) == wanted
    targets = dict.fromkeys(wanted, (broker,))
    assert layout.decode_reassignment(layout.encode_reassignment(targets)) == targets
    block = ProducerIdBlock(broker_id=broker, first_id=first, last_id=first + 999)
    assert ProducerIdBlock.decode(block.encode()) == block


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "version", "id", "endpoints", "listener_security_protocol_map", "rack", "features", "partitions", "topic_id",
    "adding_replicas", "leader", "leader_epoch", "isr", "controller_epoch", "brokerid", "config", "entity_path",
    "broker", "block_start", "block_end", "status", "topic", "partition", "host", "port",
]  # fmt: skip
hostile = st.binary(max_size=40) | st.dictionaries(st.sampled_from(KEYS), json_values, max_size=8).map(
    lambda value: json.dumps(value).encode()
)


@given(hostile)
def test_invalid_content_only_causes_warnings(data: bytes) -> None:
    for decode in (
        layout.ClusterId.decode,
        lambda data: BrokerRegistration.decode(1, data),
        lambda data: TopicAssignment.decode("t", data),
        lambda data: PartitionState.decode(TopicPartition("t", 0), data),
        layout.ControllerRegistration.decode,
        layout.decode_controller_epoch,
        lambda data: layout.decode_config("/c", data),
        lambda data: layout.ConfigChangeNotification.decode("/c", data),
        lambda data: layout.decode_partitions("/p", data),
        layout.decode_reassignment,
        ProducerIdBlock.decode,
        lambda data: layout.LogDirEvent.decode("/l", data),
        layout.Feature.decode,
    ):
        try:
            decode(data)
        except LayoutError as error:
            assert str(error).startswith("/")
