"""A cluster of real controllers on a real ZooKeeper, with fake brokers that only record the controller's requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import NetworkError
from odradek.base.system_ports import SystemClock
from odradek.base.types import Endpoint, TopicPartition
from odradek.controller.controller_runtime import ControllerRuntime
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import (
    Message,
    RequestHeader,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from odradek.zk import layout
from odradek.zk.kazoo_client import KazooZkClient, ZkSettings
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek.zk.registration import BrokerRegistrar, prepare

FIRST_PORT = 9000


class FakeBroker:
    """A fake broker: registered in ZooKeeper with a separate session; records the controller's requests."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.epoch = -1
        self.zk: KazooZkClient | None = None
        self.reachable = True
        self.requests: list[tuple[ApiKey, Any]] = []
        self.replicas: dict[TopicPartition, Any] = {}
        self.metadata: dict[TopicPartition, Any] = {}
        self.live_brokers: tuple[int, ...] = ()
        self.deleted: list[TopicPartition] = []
        self.versions: dict[ApiKey, int] = {}
        self.stop_error = 0

    async def up(self) -> None:
        """Register in a new session."""
        self.zk = await self.cluster.connect_zookeeper()
        registration = BrokerRegistration(
            broker_id=self.broker_id,
            endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", FIRST_PORT + self.broker_id),),
            rack=f"rack-{self.broker_id}",
        )
        self.epoch = await BrokerRegistrar(self.zk, self.cluster.clock, wait_ms=0).register(registration)

    async def down(self) -> None:
        """End the session, as after a crash."""
        zk, self.zk = self.zk, None
        assert zk is not None
        self.replicas.clear()
        await zk.close()

    def take(self, api_key: ApiKey, version: int, message: Message) -> Any:
        """Handle a request that was encoded and decoded, and encode the response."""
        frame = encode_request(api_key, version, 1, "controller", message)[4:]
        return decode_response(api_key, version, self.answer(*_decoded(frame)))

    def answer(self, header: RequestHeader, frame: bytes, position: int) -> bytes:
        """Return the response frame to a request frame, both without length prefixes."""
        request = decode_request(header, frame, position)
        assert request.broker_epoch == self.epoch
        api_key = ApiKey(header.api_key)
        self.requests.append((api_key, request))
        answer = {
            ApiKey.LEADER_AND_ISR: self._leader_and_isr,
            ApiKey.UPDATE_METADATA: self._update_metadata,
            ApiKey.STOP_REPLICA: self._stop_replica,
        }[api_key](request)
        self.cluster.changed.set()
        return encode_response(api_key, header.api_version, header.correlation_id, answer)[4:]

    def _leader_and_isr(self, request: Any) -> Message:
        topics = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                self.replicas[TopicPartition(topic.topic_name, state.partition_index)] = state
            errors = [{"partition_index": state.partition_index, "error_code": 0} for state in topic.partition_states]
            topics.append({"topic_id": topic.topic_id, "partition_errors": errors})
        return {"error_code": 0, "topics": topics, "partition_errors": ()}

    def _update_metadata(self, request: Any) -> Message:
        self.live_brokers = tuple(sorted(int(broker.id) for broker in request.live_brokers))
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader == -2:
                    self.metadata.pop(partition, None)
                else:
                    self.metadata[partition] = state
        return {"error_code": 0}

    def _stop_replica(self, request: Any) -> Message:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                self.replicas.pop(partition, None)
                if state.delete_partition and not self.stop_error:
                    self.deleted.append(partition)
                code = self.stop_error if state.delete_partition else 0
                errors.append(
                    {"topic_name": topic.topic_name, "partition_index": state.partition_index, "error_code": code}
                )
        return {"error_code": 0, "partition_errors": errors}


def _decoded(frame: bytes) -> tuple[RequestHeader, bytes, int]:
    header, position = decode_header(frame)
    return header, frame, position


class FakeChannel:
    """A connection to a fake broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def pick(self, api_key: ApiKey) -> int:
        return self._broker.versions.get(api_key, API_TABLE[api_key].max_version)

    async def ask(self, api_key: ApiKey, version: int, message: Message) -> Any:
        if self._broker.zk is None or not self._broker.reachable:
            raise NetworkError("the fake broker is down")
        return self._broker.take(api_key, version, message)

    client_id = "controller"

    async def call(self, encode: Callable[[int], Sequence[Any]]) -> memoryview:
        """Handle an encoded frame and return the response frame."""
        frame = b"".join(encode(1))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header, position = decode_header(frame[4:])
        if self._broker.zk is None or not self._broker.reachable:
            raise NetworkError("the fake broker is down")
        return memoryview(self._broker.answer(header, frame[4:], position))

    async def close(self) -> None:
        return None


class Cluster:
    """Fake brokers and real controllers over one chroot."""

    def __init__(self, connect_string: str) -> None:
        self.connect_string = connect_string
        self.clock = SystemClock(asyncio.get_running_loop())
        self.brokers: dict[int, FakeBroker] = {}
        self.changed = asyncio.Event()
        self.zk: KazooZkClient
        self._clients: list[KazooZkClient] = []
        self._runtimes: list[ControllerRuntime] = []

    async def connect_zookeeper(self) -> KazooZkClient:
        client = KazooZkClient(ZkSettings(connect=self.connect_string, session_timeout_ms=6_000))
        self._clients.append(client)
        await client.start()
        return client

    async def connect(self, endpoint: Endpoint) -> FakeChannel:
        return FakeChannel(self.brokers[endpoint.port - FIRST_PORT])

    async def start_brokers(self, *ids: int) -> None:
        for broker_id in ids:
            self.brokers[broker_id] = FakeBroker(self, broker_id)
            await self.brokers[broker_id].up()

    async def start_controller(
        self,
        broker_id: int,
        settings: Mapping[str, str] | None = None,
        *,
        register: Callable[[], Any] | None = None,
    ) -> tuple[ControllerRuntime, KazooZkClient]:
        properties = {
            "zookeeper.connect": self.connect_string,
            "broker.id": str(broker_id),
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "auto.leader.rebalance.enable": "false",
        }
        config, _ = BrokerConfig.parse(properties | dict(settings or {}))
        client = await self.connect_zookeeper()
        runtime = ControllerRuntime(client, self.clock, config, connect=self.connect, register=register)
        self._runtimes.append(runtime)
        await runtime.start()
        await self.until(lambda: runtime.controller_id >= 0)
        return runtime, client

    async def make_topic(
        self, name: str, partitions: Mapping[int, Sequence[int]], *, with_id: bool = True, config: str | None = None
    ) -> UUID | None:
        """Create a topic in ZooKeeper like a tool."""
        topic_id = uuid4() if with_id else None
        topic = TopicAssignment(
            topic=name,
            topic_id=topic_id,
            partitions={number: ReplicaAssignment(replicas=tuple(replicas)) for number, replicas in partitions.items()},
        )
        if config is not None:
            await self.zk.create(layout.config_path("topics", name), config.encode(), make_parents=True)
        await self.zk.create(topic.path, topic.encode(), make_parents=True)
        return topic_id

    async def state(self, partition: TopicPartition) -> PartitionState:
        return PartitionState.decode(partition, (await self.zk.get(layout.partition_state_path(partition)))[0])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the recorded requests holds; checks it after each request and periodically."""
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                timer = self.clock.call_later(20, self.changed.set)
                await self.changed.wait()
                timer.cancel()

    async def until_znode(self, path: str, condition: Callable[[bytes | None], bool]) -> None:
        """Wait until a znode has this content; None: until it does not exist."""
        event = asyncio.Event()
        watch = self.zk.watch_data(path, event.set)
        async with asyncio.timeout(30):
            while True:
                event.clear()
                found = await self.zk.get_or_none(path)
                if condition(None if found is None else found[0]):
                    break
                await event.wait()
        watch.cancel()

    async def close(self) -> None:
        for runtime in self._runtimes:
            await runtime.close()
        for client in self._clients:
            await client.close()


@pytest.fixture
async def cluster(odradek_zookeeper: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(f"{odradek_zookeeper}/{uuid4().hex}")
    cluster.zk = await cluster.connect_zookeeper()
    await prepare(cluster.zk)
    yield cluster
    await cluster.close()


@pytest.fixture
def received() -> Callable[[FakeBroker, ApiKey], list[Any]]:
    """Return the requests of one API that a broker received."""

    def select(broker: FakeBroker, api_key: ApiKey) -> list[Any]:
        return [request for key, request in broker.requests if key is api_key]

    return select
