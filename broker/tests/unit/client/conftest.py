"""An in-memory Kafka cluster that serves real frames and fails as a test prescribes, for clients in virtual time."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from odradek.base.errors import (
    NetworkError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from odradek.base.ports import Buffer
from odradek.base.types import TopicPartition
from odradek.client.metadata import Node
from odradek.network.channel import NO_FEATURES, ClusterFeatures
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import (
    Message,
    RequestHeader,
    Response,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from odradek.protocol.hotpath import (
    FetchedPartition,
    ProducedPartition,
    decode_fetch,
    decode_produce,
    encode_fetch_response,
    encode_produce_response,
)
from odradek.records.v2.batch import read_header, stamp
from odradek.records.v2.record import decode_batch
from odradek_testkit.batches import iterate

INVALID_EPOCH = 47
REMEMBERED_BATCHES = 5


@dataclass
class Fault:
    """A fault of one request: an error code for its partitions, or the loss of the request or of its response."""

    code: int = 0
    lose_request: bool = False
    lose_answer: bool = False


@dataclass
class Log:
    """One partition."""

    leader: int
    epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    next_offset: int = 0
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)

    def append(self, records: memoryview) -> tuple[int, int]:
        """Append a batch and return error code and base offset. Checks sequence numbers as a broker does."""
        header = read_header(records)
        if header.producer_id >= 0:
            known_epoch, last = self.producers.get(header.producer_id, (-1, deque(maxlen=REMEMBERED_BATCHES)))
            if header.producer_epoch < known_epoch:
                return INVALID_EPOCH, -1
            if header.producer_epoch > known_epoch:
                last = deque(maxlen=REMEMBERED_BATCHES)
                if known_epoch != -1 and header.base_sequence != 0:
                    return OutOfOrderSequenceError.code, -1
            for first, final, offset in last:
                if (first, final) == (header.base_sequence, header.last_sequence):
                    return 0, offset
            if header.base_sequence != (last[-1][1] + 1 if last else 0):
                return OutOfOrderSequenceError.code, -1
            last.append((header.base_sequence, header.last_sequence, self.next_offset))
            self.producers[header.producer_id] = (header.producer_epoch, last)
        base_offset = self.next_offset
        batch = bytearray(records)
        stamp(batch, 0, base_offset, self.epoch)
        self.batches.append(bytes(batch))
        self.next_offset += header.record_count
        return 0, base_offset

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch in the log that is not above `epoch`, and its end; -1 and -1 without one."""
        headers = [read_header(batch) for batch in self.batches]
        found = [header.leader_epoch for header in headers if header.leader_epoch <= epoch]
        if epoch == self.epoch:
            return epoch, self.next_offset
        later = [header.base_offset for header in headers if header.leader_epoch > epoch]
        return (max(found), min(later, default=self.next_offset)) if found else (-1, -1)

    def truncate(self, offset: int) -> None:
        """Remove the records from `offset` on, like an unclean leader that lacks them."""
        self.batches = [batch for batch in self.batches if read_header(batch).next_offset <= offset]
        self.next_offset = offset

    def values(self) -> list[bytes]:
        """Return the value of every record, in order."""
        found: list[bytes] = []
        for batch in self.batches:
            for position, header in iterate(batch):
                found += [record.value or b"" for record in decode_batch(batch, position, header, limit=1 << 24)]
        return found


class FakeCluster:
    """A cluster of `nodes` brokers. `topics` maps names to numbers of partitions; the leaders alternate."""

    def __init__(self, topics: dict[str, int], *, nodes: int = 2) -> None:
        self.nodes = [Node(number, "fake", 9000 + number) for number in range(1, nodes + 1)]
        self.racks: dict[int, str] = {}
        """Racks by node."""
        self.logs = {
            TopicPartition(topic, number): Log(leader=1 + number % nodes)
            for topic, count in topics.items()
            for number in range(count)
        }
        self.faults: dict[ApiKey, deque[Fault]] = defaultdict(deque)
        """Faults by API. Each request takes the next one."""
        self.down: set[int] = set()
        self.asked: list[tuple[ApiKey, int]] = []
        """API and node of every request."""
        self.answers: dict[ApiKey, Callable[[Any], Message]] = {}
        """Functions that return the responses of APIs that this class does not implement."""
        self.lacking: set[ApiKey] = set()
        """APIs that the brokers do not have."""
        self.open_links = 0
        self.features = NO_FEATURES
        """The finalized features."""
        self.held: asyncio.Event | None = None
        """While this event is not set, all responses are held back."""
        self.held_fetches: dict[int, asyncio.Event] = {}
        """Events by node. While the event is not set, the node holds back its fetch responses."""
        self.held_apis: dict[ApiKey, asyncio.Event] = {}
        """Events by API. While the event is not set, responses of the API are held back."""
        self.parked_ms = 0
        """How long the last response is held back, because a fetch without data waits for some."""
        self._producer_id = 100

    def ids(self) -> dict[str, UUID]:
        """Return topic ids by name."""
        topics = sorted({partition.topic for partition in self.logs})
        return {topic: UUID(int=1 + index) for index, topic in enumerate(topics)}

    async def connect(self, node: Node) -> FakeLink:
        """Return a connection after one iteration of the loop."""
        await asyncio.sleep(0)
        # Bootstrap nodes have negative ids.
        number = node.node_id if node.node_id > 0 else 1
        if number in self.down:
            raise NetworkError(f"node {number} is down")
        self.open_links += 1
        return FakeLink(self, number)

    def handle(self, node: int, frame: bytes, fault: Fault) -> bytes:
        """Return the response frame of a node, with its length."""
        header, position = decode_header(frame)
        self.parked_ms = 0
        if header.api_key is ApiKey.PRODUCE:
            return self._produce(node, header, frame, position, fault)
        if header.api_key is ApiKey.FETCH:
            return self._fetch(node, header, frame, position, fault)
        request = decode_request(header, frame, position)
        if header.api_key in self.answers:
            message = self.answers[header.api_key](request)
        else:
            message = getattr(self, f"_{header.api_key.name.lower()}")(node, request, fault)
        return encode_response(header.api_key, header.api_version, header.correlation_id, message)

    def _produce(self, node: int, header: RequestHeader, frame: bytes, position: int, fault: Fault) -> bytes:
        request = decode_produce(header.api_version, memoryview(frame), position)
        rows = []
        for partition, records in request.entries:
            log = self.logs.get(partition)
            if log is None:
                code, offset = UnknownTopicOrPartitionError.code, -1
            elif log.leader != node:
                code, offset = NotLeaderOrFollowerError.code, -1
            elif fault.code:
                code, offset = fault.code, -1
            else:
                assert records is not None
                code, offset = log.append(records)
            rows.append(ProducedPartition(partition, code, offset))
        return encode_produce_response(header.api_version, header.correlation_id, rows)

    def _fetch(self, node: int, header: RequestHeader, frame: bytes, position: int, fault: Fault) -> bytes:
        request = decode_fetch(header.api_version, frame, position)
        names = {topic_id: name for name, topic_id in self.ids().items()}
        rows = []
        for entry in request.entries:
            topic = entry.topic or names[entry.topic_id or UUID(int=0)]
            log = self.logs[TopicPartition(topic, entry.partition)]
            code, records = fault.code, b""
            epoch, end = log.end_of(entry.last_fetched_epoch)
            if log.leader == node and not code and entry.last_fetched_epoch >= 0 and end < entry.fetch_offset:
                row = FetchedPartition(topic, self.ids()[topic], entry.partition, diverging_epoch=(epoch, end))
                rows.append(row)
                continue
            if log.leader != node:
                code = NotLeaderOrFollowerError.code
            elif entry.fetch_offset > log.next_offset:
                code = OffsetOutOfRangeError.code
            elif not code:
                fitting = [batch for batch in log.batches if read_header(batch).next_offset > entry.fetch_offset]
                records = b"".join(fitting)[: max(entry.max_bytes, len(fitting[0]) if fitting else 0)]
            rows.append(
                FetchedPartition(
                    topic, self.ids()[topic], entry.partition, code, log.next_offset, log.next_offset, 0, records
                )
            )
        if not any(row.error_code or row.records or row.diverging_epoch for row in rows):
            self.parked_ms = request.max_wait_ms
        return b"".join(bytes(part) for part in encode_fetch_response(header.api_version, header.correlation_id, rows))

    def _metadata(self, node: int, request: Any, fault: Fault) -> Message:
        known = sorted({partition.topic for partition in self.logs})
        names = known if request.topics is None else [self._name_of(topic) for topic in request.topics]
        return {
            "brokers": [
                {
                    "node_id": each.node_id,
                    "host": each.host,
                    "port": each.port,
                    "rack": self.racks.get(each.node_id),
                }
                for each in self.nodes
            ],
            "cluster_id": "fake",
            "controller_id": 1,
            "topics": [
                {
                    "error_code": 0 if name in known else UnknownTopicOrPartitionError.code,
                    "name": name,
                    "topic_id": self.ids().get(name),
                    "is_internal": name.startswith("__"),
                    "partitions": [
                        {
                            "error_code": 0,
                            "partition_index": partition.partition,
                            "leader_id": log.leader,
                            "leader_epoch": log.epoch,
                            "replica_nodes": [log.leader],
                            "isr_nodes": [log.leader],
                        }
                        for partition, log in self.logs.items()
                        if partition.topic == name
                    ],
                }
                for name in names
            ],
        }

    def _name_of(self, topic: Any) -> str:
        """Return the name of a topic in a Metadata request, which may have its id instead (KIP-516)."""
        if topic.name is not None:
            return str(topic.name)
        return next((name for name, topic_id in self.ids().items() if topic_id == topic.topic_id), "")

    def _init_producer_id(self, node: int, request: Any, fault: Fault) -> Message:
        self._producer_id += 1
        return {"error_code": fault.code, "producer_id": self._producer_id, "producer_epoch": 0}

    def _list_offsets(self, node: int, request: Any, fault: Fault) -> Message:
        topics = []
        for topic in request.topics:
            rows = []
            for item in topic.partitions:
                log = self.logs[TopicPartition(str(topic.name), item.partition_index)]
                code = fault.code if log.leader == node else NotLeaderOrFollowerError.code
                offset = 0 if item.timestamp == -2 else log.next_offset
                rows.append({"partition_index": item.partition_index, "error_code": code, "offset": offset})
            topics.append({"name": topic.name, "partitions": rows})
        return {"topics": topics}

    def _offset_for_leader_epoch(self, node: int, request: Any, fault: Fault) -> Message:
        topics = []
        for topic in request.topics:
            rows = []
            for item in topic.partitions:
                log = self.logs[TopicPartition(topic.topic, item.partition)]
                code = fault.code if log.leader == node else NotLeaderOrFollowerError.code
                epoch, end = log.end_of(item.leader_epoch)
                rows.append({"error_code": code, "partition": item.partition, "leader_epoch": epoch, "end_offset": end})
            topics.append({"topic": topic.topic, "partitions": rows})
        return {"topics": topics}

    def _find_coordinator(self, node: int, request: Any, fault: Fault) -> Message:
        found = {"key": request.coordinator_keys[0], "node_id": 1, "host": "fake", "port": 9001}
        return {"coordinators": [{**found, "error_code": fault.code, "error_message": None}]}


class FakeLink:
    """A connection to one of the nodes. It has the methods of `Channel`, but no network."""

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self._cluster = cluster
        self._node = node
        self._open = True

    @property
    def is_open(self) -> bool:
        """Whether a call can succeed."""
        return self._open and self._node not in self._cluster.down

    @property
    def features(self) -> ClusterFeatures:
        """The features that the cluster has now."""
        return self._cluster.features

    def pick(self, api_key: ApiKey) -> int:
        """Return the newest version. Raises `UnsupportedVersionError` if the brokers lack the API."""
        if api_key in self._cluster.lacking:
            raise UnsupportedVersionError(f"the brokers have no {api_key.name}")
        return API_TABLE[api_key].max_version

    async def ask(
        self, expected: type[Response], version: int, message: Message, *, timeout_ms: float | None = None
    ) -> Response:
        """Do the same as `Channel.ask`."""
        api_key = expected.API_KEY

        def encode(correlation_id: int) -> Sequence[Buffer]:
            return (encode_request(api_key, version, correlation_id, "test", message),)

        return decode_response(expected, version, await self.call(encode, timeout_ms=timeout_ms))

    async def call(
        self,
        encode: Callable[[int], Sequence[Buffer]],
        *,
        timeout_ms: float | None = None,
        expect_response: bool = True,
    ) -> memoryview:
        """Do the same as `Channel.call`, in a millisecond, during which a test can cancel the caller."""
        cluster = self._cluster
        frame = b"".join(bytes(part) for part in encode(7))[4:]
        api_key = decode_header(frame)[0].api_key
        cluster.asked.append((api_key, self._node))
        fault = cluster.faults[api_key].popleft() if cluster.faults[api_key] else Fault()
        if fault.lose_request or not self.is_open:
            self._open = False
            await asyncio.sleep(0.001)
            raise NetworkError("the connection was lost")
        answer = cluster.handle(self._node, frame, fault)
        await asyncio.sleep(0.001 + cluster.parked_ms / 1000)
        if cluster.held is not None:
            await cluster.held.wait()
        if api_key in cluster.held_apis:
            await cluster.held_apis[api_key].wait()
        if api_key is ApiKey.FETCH and self._node in cluster.held_fetches:
            await cluster.held_fetches[self._node].wait()
        if fault.lose_answer:
            self._open = False
            raise NetworkError("the connection was lost")
        return memoryview(answer)[4:] if expect_response else memoryview(b"")

    async def close(self) -> None:
        """Close the connection. The cluster counts open ones."""
        if self._open:
            self._open = False
        self._cluster.open_links -= 1


class FakeKit:
    """The names of this module that the tests of this folder use."""

    cluster = FakeCluster
    fault = Fault
    link = FakeLink


@pytest.fixture
def fakes() -> type[FakeKit]:
    """The classes of the fake cluster."""
    return FakeKit
