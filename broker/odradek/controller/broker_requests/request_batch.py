"""Collects the changes of an event of which brokers must be informed, and builds the requests.

State transitions add partitions to the batch. After the event, `take` reads the context once and returns the requests
for each broker in the order that brokers expect: LeaderAndIsr, UpdateMetadata, StopReplica. A partition that was added
several times is sent once, in its final state. Pure: `request_sender` sends the requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext, LiveBroker, slices
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, decode_header, encode_request, encode_request_header

LEADER_DURING_DELETE: Final = -2
"""Leader in UpdateMetadata of a partition whose topic is being deleted."""

EPOCH_DURING_DELETE: Final = -2
"""Leader epoch in StopReplica of such a partition. It overrides any other epoch (KIP-570)."""

PARTITIONS_PER_REQUEST: Final = 1_000
"""Partitions per LeaderAndIsr request. A broker applies a request in one step, which blocks its event loop for about
20 ms."""
NEW_PARTITIONS_PER_REQUEST: Final = 100
"""Partitions per LeaderAndIsr request if each of them needs a new log."""

_SECURITY_PROTOCOLS: Final[Mapping[str, int]] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class SharedBody:
    """A message to many brokers that differs only in the broker epoch. It is encoded once for each version."""

    __slots__ = ("_api_key", "_bodies", "_message")

    def __init__(self, api_key: ApiKey, message: Message) -> None:
        """`message` has every field. Its broker epoch is ignored."""
        self._api_key = api_key
        self._message = message
        self._bodies: dict[int, bytes] = {}

    def frame(self, version: int, correlation_id: int, client_id: str | None, broker_epoch: int) -> tuple[bytes, ...]:
        """Return a request frame in pieces. Raises `ValueError` if the message does not fit the API.

        Supports only versions with broker epochs, which are used from inter-broker protocol 2.7 on.
        """
        body = self._bodies.get(version)
        if body is None:
            body = self._bodies[version] = _encoded_body(self._api_key, version, self._message)
        header = encode_request_header(self._api_key, version, correlation_id, client_id, body_bytes=len(body))
        place = _epoch_place(self._api_key, version)
        epoch = broker_epoch.to_bytes(_EPOCH_BYTES, "big", signed=True)
        return (header, body[:place], epoch, body[place + _EPOCH_BYTES :])


_EPOCH_BYTES: Final = 8


def _encoded_body(api_key: ApiKey, version: int, message: Message) -> bytes:
    frame = encode_request(api_key, version, 0, None, message)[_LENGTH_BYTES:]
    return bytes(frame[decode_header(frame)[1] :])


_LENGTH_BYTES: Final = 4


_LISTS: Final[Mapping[ApiKey, Sequence[str]]] = {
    ApiKey.LEADER_AND_ISR: ("topic_states", "live_leaders"),
    ApiKey.UPDATE_METADATA: ("topic_states", "live_brokers"),
}
"""The bytes after the broker epoch."""


@lru_cache(maxsize=32)
def _epoch_place(api_key: ApiKey, version: int) -> int:
    """Return the position of the broker epoch in the body, found by encoding two different epochs."""
    empty = {"controller_id": 0, "controller_epoch": 0, "type": 0, **dict.fromkeys(_LISTS[api_key], ())}
    zeros = _encoded_body(api_key, version, {**empty, "broker_epoch": 0})
    ones = _encoded_body(api_key, version, {**empty, "broker_epoch": -1})
    return next(place for place, (zero, one) in enumerate(zip(zeros, ones, strict=True)) if zero != one)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRequest:
    """One request for one broker epoch."""

    broker: int
    broker_epoch: int
    api_key: ApiKey
    message: Message = field(repr=False)
    deleting: frozenset[TopicPartition] = frozenset()
    """The partitions that a StopReplica request deletes."""
    shared: SharedBody | None = field(default=None, repr=False, compare=False)
    """The message that is shared with other brokers, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerIdentity:
    """The controller as the sender of requests, and the inter-broker listener."""

    controller_id: int
    controller_epoch: int
    listener: str


class RequestBatch:
    """The changes of one event of which brokers must be informed. `take` empties it."""

    def __init__(self, context: ControllerContext, sender: ControllerIdentity) -> None:
        """`context` is read by `take`, except for the leader epochs of stopped replicas."""
        self._context = context
        self._sender = sender
        self._forget()

    def _forget(self) -> None:
        self._leader_and_isr: defaultdict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._stop: defaultdict[int, dict[TopicPartition, tuple[int, bool]]] = defaultdict(dict)
        self._metadata_brokers: set[int] = set()
        self._metadata_partitions: dict[TopicPartition, None] = {}
        self._full_metadata: set[int] = set()

    def leader_and_isr(self, brokers: Iterable[int], partition: TopicPartition, *, is_new: bool = False) -> None:
        """Send these brokers their role in the partition, and all brokers its metadata."""
        for broker in brokers:
            noted = self._leader_and_isr[broker]
            noted[partition] = is_new or noted.get(partition, False)
        self.update_metadata([partition])

    def stop_replica(self, broker: int, partition: TopicPartition, *, delete: bool) -> None:
        """Stop the replica, and delete its log if `delete` is set. A later stop does not cancel the deletion."""
        leadership = self._context.leaderships.get(partition)
        if self._context.is_being_deleted(partition.topic):
            epoch = EPOCH_DURING_DELETE
        else:
            epoch = -1 if leadership is None else leadership.state.leader_epoch
        noted = self._stop[broker].get(partition)
        self._stop[broker][partition] = (epoch, delete or (noted is not None and noted[1]))

    def update_metadata(self, partitions: Iterable[TopicPartition]) -> None:
        """Send every live broker the list of live brokers and the metadata of these partitions."""
        self._metadata_brokers.update(self._context.brokers)
        self._metadata_partitions.update(dict.fromkeys(partitions))

    def full_metadata(self, brokers: Iterable[int]) -> None:
        """Send these brokers, which have just registered, the metadata of all partitions."""
        self._full_metadata.update(brokers)

    def take(self) -> list[BrokerRequest]:
        """Return the requests in the order in which each broker must get them, and empty the batch."""
        return [request for group in self.groups() for request in group]

    def groups(self) -> Iterator[list[BrokerRequest]]:
        """Yield the requests in groups that take a few milliseconds each. The context must not change before the last
        group.

        Many partitions are divided into several requests, so that none blocks the event loop of a broker for long. The
        metadata for a broker that has just registered is in one request: a part of it would look like the whole
        cluster.
        """
        live = self._context.brokers
        roles, stops = self._leader_and_isr, self._stop
        partitions, everybody = self._metadata_partitions, self._metadata_brokers & live.keys()
        full = self._full_metadata & live.keys()
        self._forget()
        for brokers, noted in _audiences(live, roles):
            yield from self._leader_and_isr_requests(brokers, noted)
        if full:
            yield self._metadata_requests(full, self._context.leaderships)
        if everybody - full:
            # Sent even without partitions, because the list of brokers may have changed.
            for some in list(slices(partitions, PARTITIONS_PER_REQUEST)) or [[]]:
                yield self._metadata_requests(everybody - full, some)
        yield [self._stop_request(live[broker], noted) for broker, noted in stops.items() if broker in live]

    def _head(self, broker: LiveBroker) -> dict[str, object]:
        return {
            "controller_id": self._sender.controller_id,
            "controller_epoch": self._sender.controller_epoch,
            "broker_epoch": broker.epoch,
            "is_kraft_controller": False,
            "type": 0,
        }

    def _leader_and_isr_requests(
        self, brokers: Sequence[int], noted: Mapping[TopicPartition, bool]
    ) -> Iterator[list[BrokerRequest]]:
        # A new partition needs a new log. To create one takes about thirty times as long as a change of roles.
        for is_new, limit in ((True, NEW_PARTITIONS_PER_REQUEST), (False, PARTITIONS_PER_REQUEST)):
            wanted = (partition for partition, new in noted.items() if new is is_new)
            for some in slices(wanted, limit):
                yield self._to_each(brokers, ApiKey.LEADER_AND_ISR, self._leader_and_isr_fields(some, is_new=is_new))

    def _leader_and_isr_fields(self, partitions: Iterable[TopicPartition], *, is_new: bool) -> dict[str, object]:
        context = self._context
        topics: defaultdict[str, list[Message]] = defaultdict(list)
        leaders: set[int] = set()
        for partition in partitions:
            leadership = context.leaderships.get(partition)
            if leadership is None:
                continue
            state, assignment = leadership.state, context.assignment(partition)
            leaders.add(state.leader)
            topics[partition.topic].append(
                {
                    "partition_index": partition.partition,
                    "controller_epoch": state.controller_epoch,
                    "leader": state.leader,
                    "leader_epoch": state.leader_epoch,
                    "isr": state.isr,
                    "partition_epoch": leadership.partition_epoch,
                    "replicas": assignment.replicas,
                    "adding_replicas": assignment.adding,
                    "removing_replicas": assignment.removing,
                    "is_new": is_new,
                    "leader_recovery_state": int(state.recovering),
                }
            )
        return {
            "topic_states": self._by_topic(topics),
            "live_leaders": [
                self._node(context.brokers[leader]) for leader in sorted(leaders & context.brokers.keys())
            ],
        }

    def _node(self, broker: LiveBroker) -> Message:
        """Return the address of a leader on the inter-broker listener; an empty one if it does not have the
        listener."""
        for endpoint in broker.registration.endpoints:
            if endpoint.listener == self._sender.listener:
                return {
                    "broker_id": broker.registration.broker_id,
                    "host_name": endpoint.host,
                    "port": endpoint.port,
                }
        return {"broker_id": broker.registration.broker_id, "host_name": "", "port": -1}

    def _metadata_requests(self, brokers: Iterable[int], partitions: Iterable[TopicPartition]) -> list[BrokerRequest]:
        context = self._context
        topics: defaultdict[str, list[Message]] = defaultdict(list)
        for partition in partitions:
            state = self._metadata_state(partition)
            if state is not None:
                topics[partition.topic].append(state)
        fields: dict[str, object] = {
            "topic_states": self._by_topic(topics),
            "live_brokers": [self._live_broker(context.brokers[broker]) for broker in sorted(context.brokers)],
        }
        return self._to_each(sorted(brokers), ApiKey.UPDATE_METADATA, fields)

    def _to_each(self, brokers: Iterable[int], api_key: ApiKey, fields: Mapping[str, object]) -> list[BrokerRequest]:
        """Return the same request for several brokers."""
        live = [self._context.brokers[broker] for broker in brokers]
        requests = [self._request(broker, api_key, {**self._head(broker), **fields}) for broker in live]
        if len(requests) == 1:
            return requests
        body = SharedBody(api_key, requests[0].message)
        return [replace(request, shared=body) for request in requests]

    def _metadata_state(self, partition: TopicPartition) -> Message | None:
        context = self._context
        leadership = context.leaderships.get(partition)
        if leadership is None:
            return None
        state, replicas = leadership.state, context.assignment(partition).replicas
        deleting = context.is_being_deleted(partition.topic)
        return {
            "partition_index": partition.partition,
            "controller_epoch": state.controller_epoch,
            "leader": LEADER_DURING_DELETE if deleting else state.leader,
            "leader_epoch": EPOCH_DURING_DELETE if deleting else state.leader_epoch,
            "isr": state.isr,
            "zk_version": leadership.partition_epoch,
            "replicas": replicas,
            "offline_replicas": tuple(broker for broker in replicas if not context.is_online(broker, partition)),
        }

    def _by_topic(self, topics: Mapping[str, list[Message]]) -> list[Message]:
        return [
            {"topic_name": topic, "topic_id": self._context.topic_id(topic), "partition_states": states}
            for topic, states in topics.items()
        ]

    @staticmethod
    def _live_broker(broker: LiveBroker) -> Message:
        registration = broker.registration
        return {
            "id": registration.broker_id,
            "endpoints": [
                {
                    "port": endpoint.port,
                    "host": endpoint.host,
                    "listener": endpoint.listener,
                    "security_protocol": _SECURITY_PROTOCOLS[endpoint.security_protocol],
                }
                for endpoint in registration.endpoints
            ],
            "rack": registration.rack,
        }

    def _stop_request(self, broker: LiveBroker, noted: Mapping[TopicPartition, tuple[int, bool]]) -> BrokerRequest:
        topics: defaultdict[str, list[Message]] = defaultdict(list)
        for partition, (epoch, delete) in noted.items():
            topics[partition.topic].append(
                {"partition_index": partition.partition, "leader_epoch": epoch, "delete_partition": delete}
            )
        message = self._head(broker) | {
            "topic_states": [{"topic_name": topic, "partition_states": states} for topic, states in topics.items()]
        }
        message.pop("type")
        deleting = frozenset(partition for partition, (_, delete) in noted.items() if delete)
        return self._request(broker, ApiKey.STOP_REPLICA, message, deleting)

    @staticmethod
    def _request(
        broker: LiveBroker, api_key: ApiKey, message: Message, deleting: frozenset[TopicPartition] = frozenset()
    ) -> BrokerRequest:
        return BrokerRequest(
            broker=broker.registration.broker_id,
            broker_epoch=broker.epoch,
            api_key=api_key,
            message=message,
            deleting=deleting,
        )


def _audiences(
    live: Container[int], roles: Mapping[int, Mapping[TopicPartition, bool]]
) -> list[tuple[list[int], Mapping[TopicPartition, bool]]]:
    """Group the live brokers by the partitions to send to them, so that brokers with the same partitions share a
    request."""
    audiences: list[tuple[list[int], Mapping[TopicPartition, bool]]] = []
    for broker, noted in roles.items():
        if broker not in live:
            continue
        same = next((brokers for brokers, others in audiences if others == noted), None)
        if same is None:
            audiences.append(([broker], noted))
        else:
            same.append(broker)
    return audiences
