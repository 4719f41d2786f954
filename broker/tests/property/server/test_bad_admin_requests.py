"""The controller answers arbitrary admin requests and stays the controller."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest

from odradek.base.errors import NetworkError, RequestTimedOutError, UnknownServerError
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.schema import StructSchema, schema_of
from odradek_testkit.frames import random_request
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.reigning import ReigningServer

SERVED_BY_CONTROLLER = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
BIGGEST = 2**31 - 1
"""The largest number of 32 bits."""
NAMES = (
    "t",
    "",
    ".",
    "..",
    "a/b",
    "/",
    "\0",
    "t\n",
    "ü",
    "\U0001f600",
    "x" * 249,
    "x" * 250,
    "x" * 30_000,
    "T.t",
    "T_t",
)
KEYS = ("retention.ms", "cleanup.policy", "leader.replication.throttled.replicas", "nothing", "", "x" * 5_000, "ü/\0")
VALUES = (None, "", "-1", str(2**70), "compact", "0:0," * 8_000, "\0", "x" * 32_767)
COUNTS = (-BIGGEST - 1, -2, -1, 0, 1, 2, 10_001, BIGGEST)
REPLICAS = ((), (1,), (1, 1), (-1,), (0,), (BIGGEST,), (-BIGGEST - 1, 1), tuple(range(20_000)), (1,) * 20_000)

Draw = Callable[[], Any]


def known_fields(schema: StructSchema, message: Message) -> Message:
    """Return the message without fields that the schema lacks, because APIs share the generators of fields."""
    fields = {field.name: field for field in schema.fields}
    known: Message = {}
    for name in message.keys() & fields.keys():
        inner, value = fields[name].struct, message[name]
        if inner is not None and isinstance(value, list):
            value = [known_fields(inner, item) for item in value]
        known[name] = value
    return known


class Extremes:
    """Generates requests with fields at or beyond the limits of valid values."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)

    def one(self, *values: Any) -> Any:
        return self._source.choice(values)

    def some(self, draw: Draw) -> list[Any]:
        return [draw() for _ in range(self._source.randint(0, 3))]

    def or_none(self, draw: Draw) -> Any:
        return draw() if self._source.random() < 0.8 else None

    def name(self) -> str:
        return str(self._source.choice(("t", "t", *NAMES)))

    def partition(self) -> int:
        return int(self.one(0, 0, 1, -1, BIGGEST))

    def replicas(self) -> Any:
        return self._source.choice(REPLICAS)

    def setting(self) -> Message:
        name, value = self.one(*KEYS), self.one(*VALUES)
        return {"name": name, "value": value, "config_operation": self.one(-1, 0, 0, 0, 1, 2, 3, 4)}

    def resource(self) -> Message:
        name = self.one("t", "", "1", "2", self.name())
        return {
            "resource_type": self.one(0, 2, 2, 4, 4, 8, 127),
            "resource_name": name,
            "configs": self.some(self.setting),
        }

    def request(self) -> tuple[ApiKey, Message]:
        api_key = self.one(*self.bodies)
        common = {
            "timeout_ms": self.one(-BIGGEST - 1, -1, 0, 100, 5_000),
            "validate_only": self.one(True, False, False),
        }
        api = API_TABLE[api_key]
        schema = schema_of(api.request_type, api.max_version)
        return api_key, known_fields(schema, common | self.bodies[api_key](self))

    def _create_topics(self) -> Message:
        def assignment() -> Message:
            return {"partition_index": self.partition(), "broker_ids": self.replicas()}

        def topic() -> Message:
            return {
                "name": self.name(),
                "num_partitions": self.one(*COUNTS),
                "replication_factor": self.one(-32_768, -1, 0, 1, 2, 32_767),
                "assignments": self.some(assignment),
                "configs": self.some(self.setting),
            }

        return {"topics": self.some(topic)}

    def _create_partitions(self) -> Message:
        def topic() -> Message:
            assignments = self.or_none(lambda: self.some(lambda: {"broker_ids": self.replicas()}))
            return {"name": self.name(), "count": self.one(*COUNTS), "assignments": assignments}

        return {"topics": self.some(topic)}

    def _delete_topics(self) -> Message:
        def topic() -> Message:
            return {"name": self.or_none(lambda: self.one(*NAMES)), "topic_id": UUID(int=self.one(0, 1))}

        return {"topics": self.some(topic)}

    def _alter_configs(self) -> Message:
        return {"resources": self.some(self.resource)}

    def _reassign(self) -> Message:
        def partition() -> Message:
            return {"partition_index": self.partition(), "replicas": self.or_none(self.replicas)}

        return {"topics": self.some(lambda: {"name": self.name(), "partitions": self.some(partition)})}

    def _elect(self) -> Message:
        def topic() -> Message:
            return {"topic": self.name(), "partitions": self.some(self.partition)}

        return {"election_type": self.one(0, 1, 2, -1), "topic_partitions": self.or_none(lambda: self.some(topic))}

    def _update_features(self) -> Message:
        def update() -> Message:
            level = self.one(-32_768, 0, 1, 32_767)
            return {"feature": self.name(), "max_version_level": level, "upgrade_type": self.one(0, 1, 2, 3, 127)}

        return {"feature_updates": self.some(update)}

    bodies: ClassVar[dict[ApiKey, Callable[[Any], Message]]] = {
        ApiKey.CREATE_TOPICS: _create_topics,
        ApiKey.CREATE_PARTITIONS: _create_partitions,
        ApiKey.DELETE_TOPICS: _delete_topics,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
        ApiKey.ALTER_CONFIGS: _alter_configs,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassign,
        ApiKey.ELECT_LEADERS: _elect,
        ApiKey.UPDATE_FEATURES: _update_features,
    }


async def create_topic(server: ReigningServer, name: str) -> int:
    wanted = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
    answer = await server.ask(
        ApiKey.CREATE_TOPICS, 7, {"topics": [wanted], "timeout_ms": 5_000, "validate_only": False}
    )
    return int(answer.topics[0].error_code)


def unexpected(server: ReigningServer) -> Iterator[tuple[str, int]]:
    return ((api, code) for api, code in server.request_stats.errors if code == UnknownServerError.code)


@pytest.mark.parametrize("api_key", SERVED_BY_CONTROLLER, ids=lambda key: API_TABLE[key].name)
def test_the_controller_survives_any_request_of_its_apis(tmp_path: Path, api_key: ApiKey) -> None:
    source = random.Random(int(api_key))
    api = API_TABLE[api_key]

    async def scenario(server: ReigningServer) -> None:
        epoch = server.runtime.epoch
        for topic in ("a", "topic-1", "gruppe"):
            assert await create_topic(server, topic) == 0
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(20):
                answer = await server.connect().send(random_request(api, version, source))
                codec.decode_response(api_key, version, answer[4:])
                assert (server.runtime.is_active, server.runtime.epoch) == (True, epoch)
        assert not list(unexpected(server))
        # A broker that is shutting down gets no new leadership, so the topic has no leader.
        leads = api_key is not ApiKey.CONTROLLED_SHUTDOWN
        assert await create_topic(server, "afterwards") == (0 if leads else RequestTimedOutError.code)

    run(tmp_path, scenario)


@pytest.mark.parametrize("seed", range(8))
def test_the_controller_survives_extreme_values(tmp_path: Path, seed: int) -> None:
    extremes = Extremes(seed)

    async def scenario(server: ReigningServer) -> None:
        epoch = server.runtime.epoch
        for _ in range(100):
            await create_topic(server, "t")
            api_key, body = extremes.request()
            with suppress(NetworkError):  # a request that cannot be decoded closes its connection, as in Kafka
                await server.connect().ask(api_key, API_TABLE[api_key].max_version, body)
            assert (server.runtime.is_active, server.runtime.epoch) == (True, epoch)
        assert not list(unexpected(server))
        assert await create_topic(server, "afterwards") == 0

    run(tmp_path, scenario)


def run(directory: Path, scenario: Callable[[ReigningServer], Any]) -> None:
    async def main() -> None:
        server = ReigningServer(directory, VirtualClock())
        await server.start()
        try:
            await scenario(server)
        finally:
            await server.close()

    run_virtual(main())
