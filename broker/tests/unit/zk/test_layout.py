"""Znodes: old versions can be read, and errors of invalid ones name the path."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from odradek.base.types import Endpoint, TopicPartition
from odradek.zk import layout
from odradek.zk.layout import (
    BrokerRegistration,
    ClusterId,
    ConfigChangeNotification,
    ControllerRegistration,
    Feature,
    LayoutError,
    LogDirEvent,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)

T0 = TopicPartition("t", 0)


def test_paths() -> None:
    assert layout.broker_path(3) == "/brokers/ids/3"
    assert layout.partition_state_path(TopicPartition("a.b", 12)) == "/brokers/topics/a.b/partitions/12/state"
    assert layout.config_path("brokers", layout.DEFAULT_ENTITY) == "/config/brokers/<default>"
    assert layout.delete_topic_path("t") == "/admin/delete_topics/t"
    assert layout.consumer_offset_path("g", TopicPartition("a.b", 12)) == "/consumers/g/offsets/a.b/12"
    assert layout.sequence_number("/config/changes/config_change_0000000012", layout.CONFIG_CHANGE_PREFIX) == 12
    with pytest.raises(LayoutError):
        layout.sequence_number("/config/changes/other_1", layout.CONFIG_CHANGE_PREFIX)


@pytest.mark.parametrize(
    ("data", "endpoints", "rack"),
    [
        (
            b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"5"}',
            (Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),),
            None,
        ),
        (
            b'{"version":2,"host":"h","port":1,"jmx_port":-1,"timestamp":"5","endpoints":["PLAINTEXT://h:1","SSL://h:2"]}',
            (Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT"), Endpoint("SSL", "h", 2, "SSL")),
            None,
        ),
        (
            b'{"version":3,"jmx_port":-1,"timestamp":"5","endpoints":["SSL://[::1]:2"],"rack":"r"}',
            (Endpoint("SSL", "::1", 2, "SSL"),),
            "r",
        ),
        (
            b'{"version":4,"jmx_port":-1,"timestamp":"5","endpoints":["CLIENT://h:1"],'
            b'"listener_security_protocol_map":{"CLIENT":"SASL_SSL"},"rack":null,"unknown":[{}]}',
            (Endpoint("CLIENT", "h", 1, "SASL_SSL"),),
            None,
        ),
    ],
)
def test_registrations_of_old_brokers(data: bytes, endpoints: tuple[Endpoint, ...], rack: str | None) -> None:
    registration = BrokerRegistration.decode(7, data)
    assert (registration.endpoints, registration.rack, registration.timestamp_ms) == (endpoints, rack, 5)


def test_a_registration_without_a_plaintext_listener_names_no_host_on_top() -> None:
    registration = BrokerRegistration(broker_id=1, endpoints=(Endpoint("TLS", "h", 1, "SSL"),))
    assert b'"port":-1,"host":null' in registration.encode()
    assert BrokerRegistration.decode(1, registration.encode()).endpoints == registration.endpoints


def test_a_registration_has_its_machine_only_if_it_is_known() -> None:
    endpoints = (Endpoint("PLAINTEXT", "h", 1),)
    known = BrokerRegistration(broker_id=1, endpoints=endpoints, rack="r", machine="node-a")
    assert b'"rack":"r","machine":"node-a"' in known.encode()
    assert BrokerRegistration.decode(1, known.encode()) == known
    assert b"machine" not in BrokerRegistration(broker_id=1, endpoints=endpoints).encode()


def test_topics_of_versions_1_and_2_have_no_id() -> None:
    assert TopicAssignment.decode("t", b'{"version":1,"partitions":{"1":[2],"0":[1,2]}}') == TopicAssignment(
        topic="t", partitions={0: ReplicaAssignment(replicas=(1, 2)), 1: ReplicaAssignment(replicas=(2,))}
    )
    moving = TopicAssignment.decode(
        "t", b'{"version":2,"partitions":{"0":[3,1,2]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}'
    )
    assert moving.partitions[0].target == (3, 2)
    assert moving.partitions[0].preferred_leader == 3


def test_partition_numbers_are_in_order_beyond_nine() -> None:
    topic = TopicAssignment(topic="t", partitions={n: ReplicaAssignment(replicas=(1,)) for n in (10, 9, 0)})
    assert b'"partitions":{"0":[1],"9":[1],"10":[1]}' in topic.encode()


def test_recovery_of_an_unclean_leader_is_kept() -> None:
    state = PartitionState(leader=1, leader_epoch=2, isr=(1,), controller_epoch=3, recovering=True)
    assert b'"leader_recovery_state":1' in state.encode()
    assert PartitionState.decode(T0, state.encode()) == state


def test_other_old_versions() -> None:
    assert ControllerRegistration.decode(b'{"version":1,"brokerid":4,"timestamp":"8"}').broker_id == 4
    assert (
        ConfigChangeNotification.decode("/p", b'{"version":1,"entity_type":"topics","entity_name":"t"}').entity_path
        == "topics/t"
    )
    assert Feature.decode(
        b'{"features":{"f":{"min_version_level":1,"max_version_level":2}},"version":1,"status":1}'
    ) == (Feature(enabled=True, features={"f": 2}, version=1))
    assert Feature(enabled=True, features={"f": 2}, version=1).encode() == (
        b'{"features":{"f":{"max_version_level":2,"min_version_level":2}},"version":1,"status":1}'
    )
    assert layout.decode_config("/p", None) == layout.decode_config("/p", b"") == {}
    assert layout.decode_config("/p", b'{"version":1}') == {}


@pytest.mark.parametrize("data", [b"geheim", b'["geheim"]', b'{"config":{"ssl.key.password":"geheim","n":1}}'])
@pytest.mark.parametrize("path", ["/config/brokers/<default>", "/config/users/alice"])
def test_a_configuration_that_may_hold_secrets_is_not_quoted(path: str, data: bytes) -> None:
    with pytest.raises(LayoutError) as error:
        layout.decode_config(path, data)
    assert "geheim" not in str(error.value)
    assert error.value.path == path
    assert error.value.__context__ is None, "a traceback would show the secret"
    with pytest.raises(LayoutError, match="geheim"):
        layout.decode_config("/config/topics/orders", data)


BROKEN: list[tuple[Callable[[bytes], object], str, list[bytes]]] = [
    (ClusterId.decode, layout.CLUSTER_ID, [b'{"version":"1"}', b'{"id":7}']),
    (lambda data: BrokerRegistration.decode(3, data), "/brokers/ids/3", [b'{"version":0}', b'{"version":"x"}']),
    (
        lambda data: BrokerRegistration.decode(3, data),
        "/brokers/ids/3",
        [
            b'{"version":5,"endpoints":["nonsense"],"listener_security_protocol_map":{}}',
            b'{"version":5,"endpoints":["A://h:x"],"listener_security_protocol_map":{"A":"SSL"}}',
            b'{"version":5,"endpoints":["A://h:1"],"listener_security_protocol_map":{}}',
            b'{"version":5,"endpoints":"A://h:1","listener_security_protocol_map":{}}',
            b'{"version":5,"endpoints":[]}',
        ],
    ),
    (
        lambda data: TopicAssignment.decode("t", data),
        "/brokers/topics/t",
        [
            b'{"partitions":{"x":[1]}}',
            b'{"partitions":{"0":1}}',
            b'{"partitions":{"%s":[1]}}' % (b"9" * 5000),
            b'{"partitions":{"0":[true]}}',
            b'{"topic_id":"?!"}',
        ],
    ),
    (
        lambda data: PartitionState.decode(T0, data),
        "/brokers/topics/t/partitions/0/state",
        [b'{"leader":1}', b'{"leader":1,"leader_epoch":0,"isr":["1"],"controller_epoch":1}', b'{"leader":true}'],
    ),
    (ControllerRegistration.decode, layout.CONTROLLER, [b'{"brokerid":null}', b'{"brokerid":1.5}']),
    (layout.decode_controller_epoch, layout.CONTROLLER_EPOCH, [b"one"]),
    (lambda data: layout.decode_config("/c", data), "/c", [b'{"config":{"a":1}}', b'{"config":[]}']),
    (
        lambda data: ConfigChangeNotification.decode("/c", data),
        "/c",
        [b'{"version":2}', b'{"version":1,"entity_type":"topics"}'],
    ),
    (
        lambda data: layout.decode_partitions("/p", data),
        "/p",
        [b'{"partitions":[1]}', b'{"partitions":[{"topic":"t"}]}'],
    ),
    (layout.decode_reassignment, layout.REASSIGN_PARTITIONS, [b'{"partitions":[{"topic":"t","partition":0}]}']),
    (
        ProducerIdBlock.decode,
        layout.PRODUCER_ID_BLOCK,
        [b'{"broker":1,"block_start":"x","block_end":"1"}', b'{"broker":1,"block_start":"5","block_end":"4"}'],
    ),
    (lambda data: LogDirEvent.decode("/l", data), "/l", [b'{"version":1}']),
    (Feature.decode, layout.FEATURE, [b'{"version":3,"status":1,"features":{}}', b'{"version":2,"features":{}}']),
]


@pytest.mark.parametrize(
    ("decode", "path", "data"),
    [(decode, path, data) for decode, path, samples in BROKEN for data in [*samples, b"\xff", b"{", b"[1]"]],
)
def test_broken_content_names_its_path(decode: Callable[[bytes], object], path: str, data: bytes) -> None:
    with pytest.raises(LayoutError) as caught:
        decode(data)
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.path == path


def test_ids_are_kafkas_base64() -> None:
    value = UUID("b7a3bec2-8b41-48fa-bffc-f0a91ff07e50")
    assert layout.decode_uuid(layout.encode_uuid(value)) == value
    assert len(layout.encode_uuid(value)) == 22
    for bad in ("", "short", "x" * 23):
        with pytest.raises(ValueError, match="not an id"):
            layout.decode_uuid(bad)


@pytest.mark.parametrize("data", [b"", b"x", b"1.5", b"1_000", b"\xd9\xa1", b"9223372036854775808", b"{}"])
def test_an_invalid_offset_names_its_znode(data: bytes) -> None:
    path = layout.consumer_offset_path("g", T0)
    with pytest.raises(LayoutError, match="/consumers/g/offsets/t/0"):
        layout.decode_consumer_offset(path, data)


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("group", True),
        ("grüße 1", True),
        ("...", True),
        ("", False),
        (".", False),
        ("..", False),
        ("a/b", False),
        ("a\x00", False),
        ("\x85", False),
        ("\uf8ff", False),
        ("\ufff0", False),
        ("\U0001f600", False),
    ],
)
def test_names_of_znodes(name: str, is_allowed: bool) -> None:
    assert layout.is_node_name(name) is is_allowed
