"""The layout of ZooKeeper: paths of znodes, and their contents as frozen dataclasses.

Paths are relative to the chroot. The broker, the controller and the operator read and write znodes only through
`decode` and `encode` of this module. The JSON is the same as in Apache Kafka 2.7 to 3.9, including the order of keys.
Decoding accepts all older versions and ignores unknown keys. Invalid content raises `LayoutError`, which names the
path.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from uuid import UUID

from odradek.base.types import NO_BROKER, Endpoint, TopicPartition
from odradek.znode import LayoutError as LayoutError
from odradek.znode import ZnodeJson
from odradek.znode import is_node_name as is_node_name

CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
SENSITIVE_CONFIGS: Final = (f"{CONFIG}/users", f"{CONFIG}/brokers")
"""Prefixes of paths that may contain secrets."""
CONFIG_CHANGE_PREFIX: Final = "config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "log_dir_event_"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"

CONFIG_TYPES: Final = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY: Final = "<default>"

CONSUMERS: Final = "/consumers"

PERSISTENT_PATHS: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)
"""Empty znodes that every broker creates when it starts."""


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's id and assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the path of the parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """Return the path of the parent of a partition's state. The znode is empty."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """Return the path of a partition's leader and ISR."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def config_path(kind: str, name: str) -> str:
    """Return the path of an entity's configuration. `kind` is one of `CONFIG_TYPES`. `name` may be `DEFAULT_ENTITY`."""
    return f"{CONFIG}/{kind}/{name}"


def delete_topic_path(topic: str) -> str:
    """Return the path of a topic's deletion mark. The znode is empty."""
    return f"{DELETE_TOPICS}/{topic}"


def consumer_offset_path(group_id: str, partition: TopicPartition) -> str:
    """Return the path of an offset that a group stores in ZooKeeper. `group_id` must be a valid znode name."""
    return f"{CONSUMERS}/{group_id}/offsets/{partition.topic}/{partition.partition}"


def encode_uuid(value: UUID) -> str:
    """Encode a topic or cluster id as Kafka does: 22 characters of URL-safe base64 without padding."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def decode_uuid(text: str) -> UUID:
    """Decode an id. Raises `ValueError` if it is invalid."""
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (Base64Error, ValueError) as error:
        raise ValueError(f"{text!r} is not an id of 22 base64 characters") from error


def _encode(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterId:
    """`/cluster/id`: the cluster id, which was generated at the first start of the cluster."""

    cluster_id: str

    def encode(self) -> bytes:
        """Encode version 1. As in Kafka, the version is a string here."""
        return _encode({"version": "1", "id": self.cluster_id})

    @classmethod
    def decode(cls, data: bytes, path: str = CLUSTER_ID) -> ClusterId:
        """Decode the cluster id. Raises `LayoutError` if there is none."""
        return cls(cluster_id=ZnodeJson(path, data).text("id"))


_STANDARD_LISTENERS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """`/brokers/ids/N`, ephemeral: the endpoints of a live broker. Its czxid is the broker epoch (KIP-380)."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    machine: str | None = None
    """The machine on which the broker runs; None if unknown. Kafka has no such field and ignores it."""
    jmx_port: int = -1
    timestamp_ms: int = -1
    features: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    version: int = 5

    @property
    def path(self) -> str:
        """The path of the znode."""
        return broker_path(self.broker_id)

    def encode(self) -> bytes:
        """Encode version 5. `host` and `port` are those of the first PLAINTEXT listener, for clients before 0.9."""
        plain = next((end for end in self.endpoints if end.security_protocol == "PLAINTEXT"), None)
        node: dict[str, object] = {
            "features": {name: dict(levels) for name, levels in self.features.items()},
            "listener_security_protocol_map": {end.listener: end.security_protocol for end in self.endpoints},
            "endpoints": [f"{end.listener}://{_bracketed(end.host)}:{end.port}" for end in self.endpoints],
        }
        if self.rack is not None:
            node["rack"] = self.rack
        if self.machine is not None:
            node["machine"] = self.machine
        node |= {
            "jmx_port": self.jmx_port,
            "port": plain.port if plain is not None else -1,
            "host": plain.host if plain is not None else None,
            "version": 5,
            "timestamp": str(self.timestamp_ms),
        }
        return _encode(node)

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> BrokerRegistration:
        """Decode versions 1 to 5. Before version 4, the name of a listener is its security protocol."""
        path = broker_path(broker_id)
        node = ZnodeJson(path, data)
        version = node.integer("version")
        if version < 1:
            raise node.error("version", "at least 1")
        if version == 1:
            endpoints = [Endpoint("PLAINTEXT", node.text("host"), node.integer("port"))]
        else:
            known = node.texts("listener_security_protocol_map") if version >= 4 else {}
            endpoints = [_endpoint(node, known, text) for text in node.text_list("endpoints")]
        return cls(
            broker_id=broker_id,
            endpoints=tuple(endpoints),
            rack=node.text("rack") if node.has("rack") else None,
            machine=node.text("machine") if node.has("machine") else None,
            jmx_port=node.integer("jmx_port", -1),
            timestamp_ms=node.integer("timestamp", -1),
            features={
                name: {key: levels.integer(key) for key in levels.keys()}  # noqa: SIM118
                for name, levels in node.object_map("features").items()
            },
            version=version,
        )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _endpoint(node: ZnodeJson, protocols: Mapping[str, str], text: str) -> Endpoint:
    listener, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    protocol = protocols.get(listener, listener if listener in _STANDARD_LISTENERS else "")
    if not (separator and colon and protocol and port.removeprefix("-").isdecimal() and len(port) <= 6):
        raise node.error("endpoints", "LISTENER://host:port with a known security protocol")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Endpoint(listener, host, int(port), protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    """The replicas of a partition. During a reassignment, `replicas` contains old and new ones (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment. Those that are kept come first."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def is_being_reassigned(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def preferred_leader(self) -> int:
        """The first replica; -1 if there is none."""
        return self.replicas[0] if self.replicas else NO_BROKER


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """`/brokers/topics/T`: id and assignment of a topic. Topics created before Kafka 2.8 have no id."""

    topic: str
    partitions: Mapping[int, ReplicaAssignment]
    topic_id: UUID | None = None

    @property
    def path(self) -> str:
        """The path of the znode."""
        return topic_path(self.topic)

    def encode(self) -> bytes:
        """Version 3."""
        ordered = sorted(self.partitions.items())
        node: dict[str, object] = {"partitions": {str(number): list(part.replicas) for number, part in ordered}}
        if self.topic_id is not None:
            node["topic_id"] = encode_uuid(self.topic_id)
        node |= {
            "adding_replicas": {str(number): list(part.adding) for number, part in ordered if part.adding},
            "removing_replicas": {str(number): list(part.removing) for number, part in ordered if part.removing},
            "version": 3,
        }
        return _encode(node)

    @classmethod
    def decode(cls, topic: str, data: bytes) -> TopicAssignment:
        """Decode versions 1 (partitions only), 2 (with adding and removing replicas) and 3 (with the id)."""
        path = topic_path(topic)
        node = ZnodeJson(path, data)
        adding, removing = node.integer_lists("adding_replicas"), node.integer_lists("removing_replicas")
        topic_id = None
        if node.has("topic_id"):
            try:
                topic_id = decode_uuid(node.text("topic_id"))
            except ValueError as error:
                raise LayoutError(path, str(error)) from error
        return cls(
            topic=topic,
            topic_id=topic_id,
            partitions=MappingProxyType(
                {
                    number: ReplicaAssignment(
                        replicas=replicas, adding=adding.get(number, ()), removing=removing.get(number, ())
                    )
                    for number, replicas in sorted(node.integer_lists("partitions").items())
                }
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """`/brokers/topics/T/partitions/P/state`. The version of the znode is the partition epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False
    """Whether the leader was not in the ISR when it was elected and has not reported its recovery yet (KIP-704)."""

    def encode(self) -> bytes:
        """Encode version 1, with the recovery state only if the leader is recovering."""
        if self.recovering:
            return _encode(
                {
                    "leader_recovery_state": 1,
                    "controller_epoch": self.controller_epoch,
                    "leader": self.leader,
                    "version": 1,
                    "leader_epoch": self.leader_epoch,
                    "isr": list(self.isr),
                }
            )
        return _encode(
            {
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                "leader_epoch": self.leader_epoch,
                "isr": list(self.isr),
            }
        )

    @classmethod
    def decode(cls, partition: TopicPartition, data: bytes) -> PartitionState:
        """Decode version 1. Raises `LayoutError` if the leader, the epoch or the ISR is missing."""
        node = ZnodeJson(partition_state_path(partition), data)
        return cls(
            leader=node.integer("leader"),
            leader_epoch=node.integer("leader_epoch"),
            isr=node.integers("isr"),
            controller_epoch=node.integer("controller_epoch", 0),
            recovering=node.integer("leader_recovery_state", 0) == 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    """`/controller`, ephemeral: the broker that is the controller."""

    broker_id: int
    timestamp_ms: int = -1
    kraft_epoch: int = -1
    """At least 0 if a KRaft quorum is the controller (KIP-866)."""

    def encode(self) -> bytes:
        """Version 2."""
        return _encode(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_epoch,
            }
        )

    @classmethod
    def decode(cls, data: bytes, path: str = CONTROLLER) -> ControllerRegistration:
        """Decode versions 1 and 2."""
        node = ZnodeJson(path, data)
        return cls(
            broker_id=node.integer("brokerid"),
            timestamp_ms=node.integer("timestamp", -1),
            kraft_epoch=node.integer("kraftControllerEpoch", -1),
        )


def encode_controller_epoch(epoch: int) -> bytes:
    """Encode `/controller_epoch`, a plain number."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes, path: str = CONTROLLER_EPOCH) -> int:
    """Decode `/controller_epoch`. Raises `LayoutError`."""
    try:
        return int(data)
    except ValueError as error:
        raise LayoutError(path, f"expected a number, found {data[:200]!r}") from error


def encode_consumer_offset(offset: int) -> bytes:
    """Encode `/consumers/GROUP/offsets/TOPIC/PARTITION`, a plain number."""
    return str(offset).encode()


def decode_consumer_offset(path: str, data: bytes) -> int:
    """Decode an offset. Raises `LayoutError`."""
    text = data.decode("ascii", "replace")
    if _OFFSET_TEXT.fullmatch(text) is None or not -(1 << 63) <= int(text) < 1 << 63:
        raise LayoutError(path, f"expected an offset, found {data[:200]!r}")
    return int(text)


_OFFSET_TEXT: Final = re.compile("[+-]?[0-9]{1,19}")


def encode_config(values: Mapping[str, str]) -> bytes:
    """Encode `/config/KIND/NAME`: the overrides of a topic, broker, client, user or address."""
    return _encode({"version": 1, "config": dict(values)})


def decode_config(path: str, data: bytes | None) -> dict[str, str]:
    """Decode overrides. A znode that is empty or has no `config` has none.

    If the znode may contain secrets, the `LayoutError` does not quote its content.
    """
    if not data:
        return {}
    try:
        node = ZnodeJson(path, data)
        return dict(node.texts("config")) if node.has("config") else {}
    except LayoutError:
        if not path.startswith(SENSITIVE_CONFIGS):
            raise
    raise LayoutError(
        path,
        "not a JSON object whose config is an object of strings (not shown, because it may contain secrets)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChangeNotification:
    """`/config/changes/config_change_N`: notifies brokers that `/config/<entity_path>` changed."""

    entity_path: str

    def encode(self) -> bytes:
        """Version 2."""
        return _encode({"version": 2, "entity_path": self.entity_path})

    @classmethod
    def decode(cls, path: str, data: bytes) -> ConfigChangeNotification:
        """Decode versions 1 (kind and name) and 2 (a path)."""
        node = ZnodeJson(path, data)
        if node.integer("version", 1) == 1:
            return cls(entity_path=f"{node.text('entity_type')}/{node.text('entity_name')}")
        return cls(entity_path=node.text("entity_path"))


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode `/admin/preferred_replica_election` and `/isr_change_notification/isr_change_N`: a set of partitions."""
    listed = [{"topic": tp.topic, "partition": tp.partition} for tp in sorted(set(partitions))]
    return _encode({"version": 1, "partitions": listed})


def decode_partitions(path: str, data: bytes) -> frozenset[TopicPartition]:
    """Decode a set of partitions. Raises `LayoutError`."""
    return frozenset(
        TopicPartition(item.text("topic"), item.integer("partition"))
        for item in ZnodeJson(path, data).objects("partitions")
    )


def encode_reassignment(targets: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    """Encode `/admin/reassign_partitions`: the target replicas of partitions."""
    listed = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in sorted(targets.items())
    ]
    return _encode({"version": 1, "partitions": listed})


def decode_reassignment(data: bytes, path: str = REASSIGN_PARTITIONS) -> dict[TopicPartition, tuple[int, ...]]:
    """Decode target replicas. Raises `LayoutError`."""
    return {
        TopicPartition(item.text("topic"), item.integer("partition")): item.integers("replicas")
        for item in ZnodeJson(path, data).objects("partitions")
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlock:
    """`/latest_producer_id_block`: the last allocated block of producer ids, including both ends."""

    broker_id: int
    first_id: int
    last_id: int

    def encode(self) -> bytes:
        """Encode version 1. The first and the last id are strings, because some JSON parsers lose precision above
        2**53."""
        return _encode(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first_id),
                "block_end": str(self.last_id),
            }
        )

    @classmethod
    def decode(cls, data: bytes, path: str = PRODUCER_ID_BLOCK) -> ProducerIdBlock:
        """Decode version 1. Raises `LayoutError` if the last id is below the first."""
        node = ZnodeJson(path, data)
        block = cls(
            broker_id=node.integer("broker"), first_id=node.integer("block_start"), last_id=node.integer("block_end")
        )
        if block.last_id < block.first_id:
            raise node.error("block_end", "at least block_start")
        return block


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirEvent:
    """`/log_dir_event_notification/log_dir_event_N`: a log directory of a broker failed (KIP-112)."""

    broker_id: int

    def encode(self) -> bytes:
        """Encode version 1. The only type of event is a failure."""
        return _encode({"version": 1, "broker": self.broker_id, "event": 1})

    @classmethod
    def decode(cls, path: str, data: bytes) -> LogDirEvent:
        """Decode the broker id. The type of the event is ignored."""
        return cls(broker_id=ZnodeJson(path, data).integer("broker"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """`/feature`: finalized features and their levels (KIP-584)."""

    enabled: bool
    features: Mapping[str, int] = field(default_factory=dict)
    version: int = 2
    """2 from inter-broker protocol 3.3 on. Before, it is 1, and each feature also has a minimum level."""

    def encode(self) -> bytes:
        """Encode in the version of the object."""
        levels = {
            name: {"max_version_level": level} | ({"min_version_level": level} if self.version == 1 else {})
            for name, level in self.features.items()
        }
        return _encode({"features": levels, "version": self.version, "status": int(self.enabled)})

    @classmethod
    def decode(cls, data: bytes, path: str = FEATURE) -> Feature:
        """Decode versions 1 and 2."""
        node = ZnodeJson(path, data)
        if node.integer("version") not in (1, 2):
            raise node.error("version", "1 or 2")
        levels = {name: item.integer("max_version_level") for name, item in node.object_map("features").items()}
        return cls(enabled=node.integer("status") == 1, features=levels, version=node.integer("version"))


def sequence_number(path: str, prefix: str) -> int:
    """Return the number that ZooKeeper appended to the name of a sequential znode. Raises `LayoutError`."""
    name = path.rpartition("/")[2]
    number = name.removeprefix(prefix)
    if number == name or not number.isdecimal():
        raise LayoutError(path, f"expected a name of {prefix} and a number")
    return int(number)
