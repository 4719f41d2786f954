"""Subscriptions with a pattern, in virtual time."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from odradek.base.errors import ConfigError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.group_protocol import decode_subscription
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS: Final = ClientSettings.of(
    "fake:9001",
    group_id="g",
    auto_offset_reset="earliest",
    metadata_max_age_ms=1_000,
    default_api_timeout_ms=5_000,
    enable_auto_commit=False,
)


class Coordinator:
    """The coordinator of a group whose only member assigns everything to itself."""

    def __init__(self, cluster: Any) -> None:
        self.subscriptions: list[tuple[str, ...]] = []
        for name in ("join_group", "sync_group", "heartbeat", "leave_group", "offset_fetch"):
            cluster.answers[ApiKey[name.upper()]] = getattr(self, name)

    def join_group(self, request: Any) -> Message:
        metadata = bytes(request.protocols[0].metadata)
        self.subscriptions.append(decode_subscription(metadata).topics)
        return {
            "error_code": 0,
            "generation_id": len(self.subscriptions),
            "protocol_type": "consumer",
            "protocol_name": "range",
            "leader": "m1",
            "member_id": "m1",
            "members": [{"member_id": "m1", "group_instance_id": None, "metadata": metadata}],
        }

    def sync_group(self, request: Any) -> Message:
        return {"error_code": 0, "assignment": bytes(request.assignments[0].assignment)}

    def heartbeat(self, _request: Any) -> Message:
        return {"error_code": 0}

    def leave_group(self, _request: Any) -> Message:
        return {"error_code": 0, "members": []}

    def offset_fetch(self, _request: Any) -> Message:
        return {"groups": [{"group_id": "g", "topics": [], "error_code": 0}]}


def consumer_of(cluster: Any, *topics: str, **changes: Any) -> Consumer:
    return Consumer(SETTINGS.replace(**changes), *topics, clock=VirtualClock(), connect=cluster.connect)


def create(cluster: Any, topic: str) -> None:
    log_type = type(next(iter(cluster.logs.values())))
    cluster.logs[TopicPartition(topic, 0)] = log_type(leader=1)


@pytest.mark.parametrize(
    ("pattern", "changes", "expected"),
    [
        (r"logs-\d+", {}, {"logs-1", "logs-2"}),
        (re.compile("LOGS-1", re.IGNORECASE), {}, {"logs-1"}),
        ("logs", {}, set()),
        (".*", {}, {"logs-1", "logs-2", "old-logs-3"}),
        (".*", {"exclude_internal_topics": False}, {"__internal", "logs-1", "logs-2", "old-logs-3"}),
    ],
)
def test_a_pattern_must_match_whole_names(
    fakes: Any, pattern: str | re.Pattern[str], changes: dict[str, Any], expected: set[str]
) -> None:
    cluster = fakes.cluster({"__internal": 1, "logs-1": 1, "logs-2": 1, "old-logs-3": 1})
    coordinator = Coordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster, **changes) as consumer:
            consumer.subscribe(pattern=pattern)
            await consumer.getmany(timeout_ms=500)
            assert consumer.subscription() == expected
            assert {partition.topic for partition in consumer.assignment()} == expected

    run_virtual(main())
    assert coordinator.subscriptions == [tuple(sorted(expected))]


def test_the_subscription_follows_topics_that_are_created_and_deleted(fakes: Any) -> None:
    cluster = fakes.cluster({"a": 1})
    coordinator = Coordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(pattern="a|b.*")
            await consumer.getmany(timeout_ms=500)
            create(cluster, "bee")
            create(cluster, "cat")
            await consumer.getmany(timeout_ms=5_000)
            assert consumer.assignment() == {TopicPartition("a", 0), TopicPartition("bee", 0)}
            del cluster.logs[TopicPartition("bee", 0)]
            await consumer.getmany(timeout_ms=5_000)
            assert consumer.assignment() == {TopicPartition("a", 0)}
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.end_offsets([TopicPartition("bee", 0)])

    run_virtual(main())
    assert coordinator.subscriptions == [("a",), ("a", "bee"), ("a",)]


def test_another_pattern_replaces_the_first(fakes: Any) -> None:
    cluster = fakes.cluster({"a": 1, "b": 1})
    coordinator = Coordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(pattern="a")
            await consumer.getmany(timeout_ms=500)
            consumer.subscribe(pattern="b")
            await consumer.getmany(timeout_ms=500)
            assert consumer.assignment() == {TopicPartition("b", 0)}
            await consumer.unsubscribe()
            assert consumer.subscription() == set()
            # Without the pattern, new topics are not followed any more.
            create(cluster, "c")
            consumer.subscribe(["a"])
            await consumer.getmany(timeout_ms=5_000)
            assert consumer.subscription() == {"a"}

    run_virtual(main())
    assert coordinator.subscriptions == [("a",), ("b",), ("a",)]


def test_a_pattern_that_is_replaced_before_it_is_used_has_no_effect(fakes: Any) -> None:
    cluster = fakes.cluster({"a": 1, "b": 1})
    coordinator = Coordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(pattern="a")
            await consumer.getmany()
            consumer.subscribe(pattern="b")
            await consumer.getmany(timeout_ms=5_000)
            assert consumer.subscription() == {"b"}

    run_virtual(main())
    assert coordinator.subscriptions == [("b",)]


def test_topics_and_patterns_cannot_be_mixed(fakes: Any) -> None:
    cluster = fakes.cluster({"a": 1})
    Coordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            with pytest.raises(ConfigError, match="not a regular expression"):
                consumer.subscribe(pattern="(")
            with pytest.raises(ConfigError, match="unsubscribe first"):
                consumer.subscribe(["a"], pattern="a")
            consumer.subscribe(pattern="a")
            with pytest.raises(ConfigError, match="unsubscribe first"):
                consumer.subscribe(["a"])
            with pytest.raises(ConfigError, match="unsubscribe first"):
                consumer.assign([TopicPartition("a", 0)])
            await consumer.unsubscribe()
            consumer.subscribe(["a"])
            with pytest.raises(ConfigError, match="unsubscribe first"):
                consumer.subscribe(pattern="a")

    run_virtual(main())
