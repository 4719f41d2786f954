"""Collections against scripted brokers that answer real frames: the number of requests, and the effect of failures.

The live test checks that real brokers give the same answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import pytest

from odradek.base.errors import NetworkError
from odradek.base.ports import Buffer
from odradek.base.types import TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.group_protocol import encode_assignment
from odradek.client.metadata import Node
from odradek.network.channel import NO_FEATURES
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import (
    Message,
    Response,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from odradek_operator.exporter.collection import Collection
from odradek_operator.exporter.exporter_command import client_settings
from odradek_operator.exporter.exporter_settings import ExporterSettings, NameFilter
from odradek_operator.exporter.report import report_of
from odradek_operator.exporter.requests import GROUPS_AT_ONCE, PARTITIONS_AT_ONCE
from odradek_operator.exporter.snapshot import ExporterSnapshot, Position
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ExporterSettings(interval=10, stale_after=60, sizes_interval=30, request_timeout=5)
NOT_LEADER, LOADING = 6, 14
T = TypeVar("T")


@dataclass
class Brokers:
    """Brokers with the ids 1 to `count`. Broker 1 + p % count leads partition p. Each group has a coordinator."""

    count: int = 2
    topics: Mapping[str, int] = field(default_factory=lambda: {"t": 4})
    groups: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    consumer_groups: set[str] = field(default_factory=set)
    """Those of the groups that use the protocol of KIP-848."""
    down: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    end: int = 100
    newest: dict[ApiKey, int] = field(default_factory=dict)
    refused: dict[ApiKey, int] = field(default_factory=dict)
    """The error code with which each API answers."""
    asked: list[tuple[int, ApiKey, Any]] = field(default_factory=list)
    under_way: Counter[int] = field(default_factory=Counter)
    most_under_way: int = 0

    def leader(self, number: int) -> int:
        return 1 + number % self.count

    def coordinator(self, group: str) -> int:
        return 1 + len(group) % self.count

    async def connect(self, node: Node) -> Link:
        await asyncio.sleep(0)
        number = node.node_id if node.node_id > 0 else next(n for n in range(1, self.count + 1) if n not in self.down)
        if number in self.down:
            raise NetworkError(f"{number} is down")
        return Link(self, number)

    def answer(self, node: int, key: ApiKey, request: Any) -> Message:
        made: Message = getattr(self, f"_{key.name.lower()}")(node, request)
        return made

    def _metadata(self, node: int, request: Any) -> Message:
        return {
            "brokers": [
                {"node_id": n, "host": f"b{n}", "port": 9092, "rack": None}
                for n in range(1, self.count + 1)
                if n not in self.down
            ],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [
                {
                    "error_code": 0,
                    "name": name,
                    "partitions": [
                        {
                            "error_code": 0,
                            "partition_index": number,
                            "leader_id": self.leader(number),
                            "leader_epoch": 3,
                            "replica_nodes": [self.leader(number)],
                            "isr_nodes": [self.leader(number)],
                        }
                        for number in range(partitions)
                    ],
                }
                for name, partitions in self.topics.items()
            ],
        }

    def _list_offsets(self, node: int, request: Any) -> Message:
        special = {-1: self.end, -2: 7}
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": item.partition_index,
                            "offset": special.get(item.timestamp, -1),
                            "error_code": 0 if self.leader(item.partition_index) == node else NOT_LEADER,
                        }
                        for item in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def _list_groups(self, node: int, request: Any) -> Message:
        mine = [group for group in self.groups if self.coordinator(group) == node]
        code = self.refused.get(ApiKey.LIST_GROUPS, 0)
        kind = {"protocol_type": "consumer", "group_state": "Stable"}
        types = {group: "consumer" if group in self.consumer_groups else "classic" for group in mine}
        groups = [{"group_id": group, "group_type": types[group], **kind} for group in mine]
        return {"error_code": code, "groups": groups}

    def _describe_groups(self, node: int, request: Any) -> Message:
        code = self.refused.get(ApiKey.DESCRIBE_GROUPS, 0)
        assignments = [encode_assignment([TopicPartition("t", 3)]), b"\xff\xff odd"]
        members = [
            {
                "member_id": str(number),
                "client_id": "",
                "client_host": "",
                "member_metadata": b"",
                "member_assignment": assignment,
            }
            for number, assignment in enumerate(assignments)
        ]
        return {
            "groups": [
                {
                    "error_code": code,
                    "group_id": group,
                    "group_state": "Stable",
                    "protocol_type": "consumer",
                    "protocol_data": "range",
                    "members": members if group not in self.consumer_groups else (),
                }
                for group in request.groups
            ]
        }

    def _consumer_group_describe(self, node: int, request: Any) -> Message:
        def assignment(*numbers: int) -> Message:
            topic = {"topic_id": UUID(int=1), "topic_name": "t", "partitions": numbers}
            return {"topic_partitions": [topic] if numbers else []}

        members = [
            {
                "member_id": str(number),
                "member_epoch": 3,
                "client_id": "",
                "client_host": "",
                "subscribed_topic_names": ["t"],
                "assignment": assignment(*current),
                "target_assignment": assignment(0, 1),
            }
            for number, current in enumerate([(2,), (3,), ()])
        ]
        return {
            "groups": [
                {
                    "error_code": self.refused.get(ApiKey.CONSUMER_GROUP_DESCRIBE, 0),
                    "group_id": group,
                    "group_state": "Stable",
                    "group_epoch": 3,
                    "assignment_epoch": 3,
                    "assignor_name": "uniform",
                    "members": members,
                }
                for group in request.group_ids
            ]
        }

    def _offset_fetch(self, node: int, request: Any) -> Message:
        names = [group.group_id for group in request.groups] or [request.group_id]
        answers: list[Message] = [
            {
                "group_id": name,
                "error_code": self.refused.get(ApiKey.OFFSET_FETCH, 0),
                "topics": [
                    {
                        "name": partition.topic,
                        "partitions": [
                            {
                                "partition_index": partition.partition,
                                "committed_offset": offset,
                                "metadata": "",
                                "error_code": 0,
                            }
                        ],
                    }
                    for partition, offset in self.groups[name].items()
                ],
            }
            for name in names
        ]
        return {"groups": answers, "topics": answers[0]["topics"], "error_code": answers[0]["error_code"]}

    def _describe_log_dirs(self, node: int, request: Any) -> Message:
        replicas = [
            {"partition_index": number, "partition_size": 1000 + node, "offset_lag": 0, "is_future_key": False}
            for number in range(self.topics["t"])
        ]
        moving = {"partition_index": 0, "partition_size": 5, "offset_lag": 0, "is_future_key": True}
        return {
            "error_code": 0,
            "results": [
                {"error_code": 0, "log_dir": "/a", "topics": [{"name": "t", "partitions": replicas}]},
                {"error_code": 0, "log_dir": "/b", "topics": [{"name": "t", "partitions": [moving]}]},
            ],
        }


class Link:
    """A connection to a scripted broker; implements `Channel`."""

    def __init__(self, brokers: Brokers, node: int) -> None:
        self._brokers, self._node = brokers, node
        self.is_open = True
        self.features = NO_FEATURES

    def pick(self, api_key: ApiKey) -> int:
        return min(API_TABLE[api_key].max_version, self._brokers.newest.get(api_key, 99))

    async def ask(
        self, expected: type[Response], version: int, message: Message, *, timeout_ms: float | None = None
    ) -> Response:
        api_key = expected.API_KEY
        brokers = self._brokers
        frame = memoryview(encode_request(api_key, version, 7, "test", message))[4:]
        header, position = decode_header(frame)
        request = decode_request(header, frame, position)
        brokers.asked.append((self._node, api_key, request))
        if self._node in brokers.down:
            self.is_open = False
            raise NetworkError("the connection broke")
        brokers.under_way[self._node] += 1
        brokers.most_under_way = max(brokers.most_under_way, len(+brokers.under_way))
        await asyncio.sleep(5.0 if self._node in brokers.silent else 0.001)
        brokers.under_way[self._node] -= 1
        if self._node in brokers.silent:
            self.is_open = False
            raise NetworkError("no answer came in its time")
        answer = encode_response(api_key, version, 7, brokers.answer(self._node, api_key, request))
        return decode_response(expected, version, memoryview(answer)[4:])

    async def call(self, encode: Callable[[int], Sequence[Buffer]], **_: object) -> memoryview:
        raise NotImplementedError("nobody sends raw frames here")

    async def close(self) -> None:
        self.is_open = False


def collecting(
    brokers: Brokers, play: Callable[[Collection], Coroutine[Any, Any, T]], settings: ExporterSettings = SETTINGS
) -> T:
    """Run `play` with a collection over the brokers, in virtual time."""

    async def main() -> T:
        cluster = Cluster(client_settings("boot:1", settings), clock=VirtualClock(), connect=brokers.connect)
        async with cluster:
            return await play(Collection(cluster, settings))

    return run_virtual(main())


async def one(collection: Collection) -> ExporterSnapshot:
    assert await collection.once() == frozenset()
    return collection.current()


def ends(snapshot: ExporterSnapshot) -> list[int | None]:
    return [partition.end for topic in snapshot.topics for partition in topic.partitions]


def test_one_collection_learns_everything() -> None:
    brokers = Brokers(groups={"g": {TopicPartition("t", 0): 90, TopicPartition("t", 1): 100}, "idle": {}})
    snapshot = collecting(brokers, one)
    assert [broker.broker_id for broker in snapshot.brokers] == [1, 2]
    assert ends(snapshot) == [100] * 4
    assert [(each.start, each.size_bytes) for each in snapshot.topics[0].partitions] == [(7, 1001), (7, 1002)] * 2
    first, idle = snapshot.groups
    assert (first.name, first.members, idle.name) == ("g", 2, "idle")
    assert [position[:4] for position in first.positions] == [
        ("t", 0, 90, 10),
        ("t", 1, 100, 0),
        ("t", 3, -1, None),
    ]
    assert report_of(snapshot, groups_per_topic=5).topics["t"].size_bytes == 4006


def test_who_was_behind_before_the_first_look_has_a_lag_in_seconds() -> None:
    brokers = Brokers(groups={"g": {TopicPartition("t", 0): 90}})
    snapshot = collecting(brokers, one)
    # No broker has a record as new as any of the requested times, so the lag is at least the longest of them.
    (position,) = [each for each in snapshot.groups[0].positions if each.partition == 0]
    assert position == Position("t", 0, 90, 10, pytest.approx(7 * 86_400.0, rel=1e-6))


def test_ten_thousand_partitions_take_few_requests() -> None:
    brokers = Brokers(count=3, topics={"t": 10_000}, groups={f"g{n}": {} for n in range(250)})
    snapshot = collecting(brokers, one)
    assert ends(snapshot) == [100] * 10_000
    assert len(snapshot.groups) == 250
    counts = Counter((node, key) for node, key, _ in brokers.asked)
    assert max(counts[node, ApiKey.LIST_OFFSETS] for node in (1, 2, 3)) == 2
    assert sum(counts[node, ApiKey.OFFSET_FETCH] for node in (1, 2, 3)) <= 3 + 250 // GROUPS_AT_ONCE
    assert len(brokers.asked) < 30


@pytest.mark.parametrize("partitions", [PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE + 1])
def test_no_request_is_larger_than_a_portion(partitions: int) -> None:
    brokers = Brokers(count=1, topics={"t": partitions})
    collecting(brokers, one)
    sizes = [
        sum(len(topic.partitions) for topic in request.topics)
        for _, key, request in brokers.asked
        if key is ApiKey.LIST_OFFSETS
    ]
    assert max(sizes) == PARTITIONS_AT_ONCE
    assert sum(sizes) == 2 * partitions


def test_brokers_that_take_one_group_are_asked_one_by_one() -> None:
    brokers = Brokers(count=1, groups={name: {TopicPartition("t", 0): 1} for name in ("a", "b")})
    brokers.newest = {ApiKey.OFFSET_FETCH: 7}
    snapshot = collecting(brokers, one)
    assert [group.positions[0].committed for group in snapshot.groups] == [1, 1]


@pytest.mark.parametrize("how", ["down", "silent"])
def test_a_broker_that_fails_takes_nothing_from_the_other(how: str) -> None:
    brokers = Brokers(groups={"g": {TopicPartition("t", 0): 90}, "gg": {TopicPartition("t", 0): 95}})

    async def play(collection: Collection) -> None:
        await collection.once()
        getattr(brokers, how).add(2)
        brokers.end = 101
        failed = await collection.once()
        assert failed == (frozenset({2}) if how == "silent" else frozenset())
        snapshot = collection.current()
        assert ends(snapshot) == [101, 100, 101, 100], "reported values stay"
        assert [group.name for group in snapshot.groups] == ["g", "gg"]
        await asyncio.sleep(61)
        await collection.once()
        snapshot = collection.current()
        assert ends(snapshot) == [101, None, 101, None], "until it is old"
        assert [group.name for group in snapshot.groups] == ["gg"]
        getattr(brokers, how).clear()
        await asyncio.sleep(5)
        assert await collection.once() == frozenset()
        assert ends(collection.current()) == [101] * 4

    collecting(brokers, play)


@pytest.mark.parametrize("refused", [ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH])
def test_what_a_coordinator_refuses_stays_as_it_was(refused: ApiKey) -> None:
    brokers = Brokers(groups={"g": {TopicPartition("t", 0): 90}})

    async def play(collection: Collection) -> None:
        await collection.once()
        brokers.refused[refused] = LOADING
        brokers.groups["g"][TopicPartition("t", 0)] = 95
        await collection.once()
        (group,) = collection.current().groups
        assert group.members == 2
        kept = refused is not ApiKey.DESCRIBE_GROUPS
        assert group.positions[0].committed == (90 if kept else 95)

    collecting(brokers, play)


def test_members_of_consumer_groups_are_described_by_their_own_api() -> None:
    commits = {TopicPartition("t", 0): 90}
    brokers = Brokers(groups={"new": commits, "old": dict(commits)}, consumer_groups={"new"})

    async def play(collection: Collection) -> None:
        groups = {group.name: group for group in (await one(collection)).groups}
        assert {name: group.members for name, group in groups.items()} == {"new": 3, "old": 2}
        brokers.refused[ApiKey.CONSUMER_GROUP_DESCRIBE] = LOADING
        groups = {group.name: group for group in (await one(collection)).groups}
        assert groups["new"].members == 3, "the last value is used until it expires"

    collecting(brokers, play)
    asked = {key: request for _, key, request in brokers.asked}
    assert asked[ApiKey.DESCRIBE_GROUPS].groups == ("old",)
    assert asked[ApiKey.CONSUMER_GROUP_DESCRIBE].group_ids == ("new",)


def test_sizes_are_asked_for_less_often() -> None:
    brokers = Brokers(count=1)

    async def play(collection: Collection) -> int:
        for _ in range(7):
            await collection.once()
            await asyncio.sleep(10)
        return sum(key is ApiKey.DESCRIBE_LOG_DIRS for _, key, _ in brokers.asked)

    assert collecting(brokers, play) == 3


def test_not_too_many_brokers_are_asked_at_once() -> None:
    brokers = Brokers(count=6)
    collecting(brokers, one, ExporterSettings(brokers_at_once=2))
    assert brokers.most_under_way == 2


def test_groups_are_filtered_and_bounded() -> None:
    brokers = Brokers(count=1, groups={name: {} for name in ("a", "b", "c", "console")})
    settings = ExporterSettings(max_groups=2, groups=NameFilter.of(".*", "console"))
    assert [group.name for group in collecting(brokers, one, settings).groups] == ["a", "b"]


def test_topics_that_are_not_looked_at_are_not_asked_about() -> None:
    brokers = Brokers(count=1, topics={"t": 2, "u": 2})
    collecting(brokers, one, ExporterSettings(topics=NameFilter.of("t", "^$")))
    asked = {topic.name for _, key, request in brokers.asked if key is ApiKey.LIST_OFFSETS for topic in request.topics}
    assert asked == {"t"}


def test_without_any_broker_it_fails_and_what_is_old_goes() -> None:
    brokers = Brokers(count=1)

    async def play(collection: Collection) -> None:
        await collection.once()
        brokers.silent.add(1)
        with pytest.raises(NetworkError):
            await collection.once()
        assert ends(collection.current()) == [100] * 4
        await asyncio.sleep(61)
        assert collection.current() == ExporterSnapshot()

    collecting(brokers, play)
