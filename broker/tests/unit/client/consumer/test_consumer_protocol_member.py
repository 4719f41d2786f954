"""A member under the protocol of KIP-848 with a coordinator that returns prescribed answers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from odradek.base.errors import (
    ConfigError,
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    NotCoordinatorError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.consumer_protocol.consumer_protocol_member import new_member_id
from odradek.client.models import SubscriptionPattern
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek_testkit.clients.assigning_coordinator import INTERVAL_MS, AssigningCoordinator
from odradek_testkit.loop import ManualClock, VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001", group_id="g", group_protocol="consumer", auto_offset_reset="earliest")


class Listener:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.slow_ms = 0.0

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(f"revoked {numbers_of(partitions)}")
        await VirtualClock().sleep_ms(self.slow_ms)

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(f"assigned {numbers_of(partitions)}")

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(f"lost {numbers_of(partitions)}")


def numbers_of(partitions: Sequence[TopicPartition]) -> list[int]:
    return [each.partition for each in partitions]


def consumer_of(cluster: Any, *topics: str, **changes: Any) -> Consumer:
    return Consumer(SETTINGS.replace(**changes), *topics, clock=VirtualClock(), connect=cluster.connect)


def pick_of_kafka_3_9(_link: Any, api_key: ApiKey) -> int:
    return 0 if api_key is ApiKey.CONSUMER_GROUP_HEARTBEAT else API_TABLE[api_key].max_version


def identity_only(request: Any) -> bool:
    fields = (request.rack_id, request.subscribed_topic_names, request.server_assignor, request.topic_partitions)
    return fields == (None,) * 4 and request.rebalance_timeout_ms == -1


def test_the_first_heartbeat_has_all_fields_and_later_ones_only_changes(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)

    async def main() -> None:
        settings = {"client_rack": "r1", "group_remote_assignor": "range", "max_poll_interval_ms": 60_000}
        async with consumer_of(cluster, "t", **settings) as consumer:
            await consumer.getmany(timeout_ms=10_000)
            assert consumer.assignment() == {TopicPartition("t", 0), TopicPartition("t", 1)}
            assert consumer.membership == (1, coordinator.requests[0].member_id, None)

    run_virtual(main())
    first, acknowledging, *later, last = coordinator.requests
    assert (first.member_epoch, first.rack_id, first.server_assignor) == (0, "r1", "range")
    assert (first.rebalance_timeout_ms, first.subscribed_topic_names, first.topic_partitions) == (60_000, ("t",), ())
    assert first.subscribed_topic_regex is None
    assert (acknowledging.member_epoch, acknowledging.subscribed_topic_names) == (1, None)
    assert coordinator.owned()[1] == [0, 1]
    assert all(identity_only(each) for each in later)
    # The interval is that of the responses.
    assert coordinator.times_ms[2] - coordinator.times_ms[1] == INTERVAL_MS
    assert coordinator.times_ms[3] - coordinator.times_ms[2] == INTERVAL_MS
    assert (last.member_epoch, {each.member_id for each in coordinator.requests}) == (-1, {first.member_id})
    assert cluster.open_links == 0


@pytest.mark.parametrize(
    "error", [NotCoordinatorError, CoordinatorLoadInProgressError, FencedMemberEpochError, UnknownMemberIdError]
)
def test_joining_is_repeated_after_a_passing_error(fakes: Any, error: type[ProtocolError]) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    coordinator.errors = [error, error]

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=2_000)
            assert len(consumer.assignment()) == 2

    run_virtual(main())
    assert coordinator.epochs()[:4] == [0, 0, 0, 1]
    assert coordinator.owned()[:4] == [[], [], [], [0, 1]]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (UnreleasedInstanceIdError, r"group\.instance\.id=one"),
        (FencedInstanceIdError, r"group\.instance\.id=one"),
        (UnsupportedAssignorError, r"group\.remote\.assignor=best"),
        (GroupMaxSizeReachedError, r"group\.consumer\.max\.size"),
        (GroupAuthorizationFailedError, "operation Read on the group"),
        (TopicAuthorizationFailedError, "operation Describe on every topic"),
        (InvalidRequestError, "as invalid"),
        (UnsupportedVersionError, r"group\.protocol=classic"),
    ],
)
def test_permanent_errors_are_raised_with_advice(fakes: Any, error: type[ProtocolError], advice: str) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    coordinator.errors = [error, None, None, error]
    listener = Listener()

    async def main() -> None:
        settings = {"group_instance_id": "one", "group_remote_assignor": "best"}
        async with consumer_of(cluster, **settings) as consumer:
            consumer.subscribe(["t"], listener=listener)
            with pytest.raises(error, match=f"{advice}.* The answer was: no"):
                await consumer.getmany(timeout_ms=5_000)
            await consumer.getmany(timeout_ms=1_000)
            assert len(consumer.assignment()) == 2
            with pytest.raises(error, match=advice):
                await consumer.getmany(timeout_ms=10_000)
            await consumer.getmany(timeout_ms=1_000)

    run_virtual(main())
    if error is TopicAuthorizationFailedError:
        # The member stays in the group, and its assignment in effect.
        assert listener.events == ["assigned [0, 1]", "revoked [0, 1]"]
        assert coordinator.epochs() == [0, 0, 1, 1, 1, -2]
    else:
        assert listener.events == ["assigned [0, 1]", "lost [0, 1]", "assigned [0, 1]", "revoked [0, 1]"]
        assert coordinator.epochs() == [0, 0, 1, 1, 0, 2, -2]


def test_only_the_partitions_that_move_are_revoked_and_assigned(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 4})
    coordinator = AssigningCoordinator(cluster)
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster, auto_commit_interval_ms=1_000_000) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await consumer.getmany(timeout_ms=1_000)
            consumer.seek(TopicPartition("t", 0), 5)
            cluster.logs[TopicPartition("t", 0)].next_offset = 5
            coordinator.give(0)
            await consumer.getmany(timeout_ms=3_000)
            assert await consumer.position(TopicPartition("t", 0)) == 5
            coordinator.give(0, 2, 3)
            await consumer.getmany(timeout_ms=3_000)
            assert await consumer.position(TopicPartition("t", 0)) == 5

    run_virtual(main())
    assert listener.events == [
        "assigned [0, 1]",
        "revoked [1]",
        "assigned []",
        "assigned [2, 3]",
        "revoked [0, 2, 3]",
    ]
    assert [owned for owned in coordinator.owned() if owned is not None] == [[], [0, 1], [0], [0, 2, 3]]
    # Commits of the revoked partition come before the acknowledgement, with the epoch that the member had.
    assert [(epoch, numbers) for _, epoch, numbers in coordinator.committers] == [(2, [1]), (3, [0, 2, 3])]


def test_the_newest_target_wins_and_heartbeats_continue_during_a_revocation(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 4})
    coordinator = AssigningCoordinator(cluster)
    listener = Listener()
    listener.slow_ms = 4 * INTERVAL_MS

    async def main() -> None:
        async with consumer_of(cluster, auto_commit_interval_ms=1_000_000) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await consumer.getmany(timeout_ms=1_000)
            coordinator.give(0)
            await consumer.getmany(timeout_ms=INTERVAL_MS)
            sent = len(coordinator.requests)
            coordinator.give(0, 3)
            await consumer.getmany(timeout_ms=2 * INTERVAL_MS)
            assert len(coordinator.requests) >= sent + 2
            coordinator.give(2, 3)
            await consumer.getmany(timeout_ms=20 * INTERVAL_MS)
            assert consumer.assignment() == {TopicPartition("t", 2), TopicPartition("t", 3)}

    run_virtual(main())
    assert listener.events[:4] == ["assigned [0, 1]", "revoked [1]", "revoked [0]", "assigned [2, 3]"]
    assert [owned for owned in coordinator.owned() if owned is not None] == [[], [0, 1], [0], [2, 3]]


def test_each_target_is_acknowledged_also_if_the_assignment_stays_the_same(fakes: Any) -> None:
    """The coordinator may wait for the revocation of a partition that the member never took."""
    cluster = fakes.cluster({"t": 4})
    coordinator = AssigningCoordinator(cluster)
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await consumer.getmany(timeout_ms=1_000)
            coordinator.give(0, 1, 2)
            await VirtualClock().sleep_ms(INTERVAL_MS)
            coordinator.give(0, 1)
            await VirtualClock().sleep_ms(INTERVAL_MS)
            assert coordinator.owned()[-1] is None
            await consumer.getmany(timeout_ms=100)
            assert coordinator.owned()[-1] == [0, 1]

    run_virtual(main())
    assert listener.events == ["assigned [0, 1]", "assigned []", "revoked [0, 1]"]


@pytest.mark.parametrize("error", [FencedMemberEpochError, UnknownMemberIdError])
def test_a_removed_member_loses_its_partitions_and_joins_again(fakes: Any, error: type[ProtocolError]) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    coordinator.errors = [None, None, error]
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster, auto_commit_interval_ms=1_000_000) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await consumer.getmany(timeout_ms=1_000)
            await VirtualClock().sleep_ms(INTERVAL_MS)
            with pytest.raises(UnknownMemberIdError):
                consumer.group_metadata()
            with pytest.raises(UnknownMemberIdError):
                await consumer.commit()
            assert listener.events == ["assigned [0, 1]"]
            await consumer.getmany(timeout_ms=1_000)
            assert listener.events == ["assigned [0, 1]", "lost [0, 1]", "assigned [0, 1]"]

    run_virtual(main())
    assert coordinator.epochs() == [0, 1, 1, 0, 2, -1]
    assert len({request.member_id for request in coordinator.requests}) == 1
    assert coordinator.requests[3].subscribed_topic_names == ("t",)
    assert [epoch for _, epoch, _ in coordinator.committers] == [2]


@pytest.mark.parametrize(("instance_id", "leaving"), [(None, -1), ("one", -2)])
def test_a_member_that_is_not_polled_leaves_and_joins_at_the_next_poll(
    fakes: Any, instance_id: str | None, leaving: int
) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster, max_poll_interval_ms=10_000, group_instance_id=instance_id) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await consumer.getmany(timeout_ms=100)
            await VirtualClock().sleep_ms(9_000)
            assert leaving not in coordinator.epochs()
            await VirtualClock().sleep_ms(60_000)
            assert coordinator.epochs()[-1] == leaving
            assert listener.events == ["assigned [0, 1]"]
            # A member that waits for records is not idle.
            await consumer.getmany(timeout_ms=60_000)
            assert listener.events == ["assigned [0, 1]", "lost [0, 1]", "assigned [0, 1]"]
            assert coordinator.epochs().count(leaving) == 1

    run_virtual(main())
    assert coordinator.epochs()[-1] == leaving
    assert {request.instance_id for request in coordinator.requests} == {instance_id}


def test_a_member_that_is_not_polled_while_it_joins_waits_for_the_poll(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    coordinator.errors = [CoordinatorLoadInProgressError] * 20

    async def main() -> None:
        async with consumer_of(cluster, "t", max_poll_interval_ms=5_000) as consumer:
            await consumer.getmany(timeout_ms=100)
            await VirtualClock().sleep_ms(60_000)
            assert coordinator.epochs()[-1] == -1
            coordinator.errors = []
            await consumer.getmany(timeout_ms=1_000)
            assert len(consumer.assignment()) == 2

    run_virtual(main())


def test_partitions_of_unknown_topics_wait_for_the_metadata(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = AssigningCoordinator(cluster)
    coordinator.unknown_ids = {"u": UUID(int=2)}
    coordinator.target = [("t", 0), ("u", 0)]
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await consumer.getmany(timeout_ms=5_000)
            assert consumer.assignment() == {TopicPartition("t", 0)}
            cluster.logs[TopicPartition("u", 0)] = type(cluster.logs[TopicPartition("t", 0)])(leader=2)
            await consumer.getmany(timeout_ms=2_000)
            assert consumer.assignment() == {TopicPartition("t", 0), TopicPartition("u", 0)}

    run_virtual(main())
    assert listener.events[:2] == ["assigned [0]", "assigned [0]"]
    assert [owned for owned in coordinator.owned() if owned is not None] == [[], [0], [0, 0]]


@pytest.mark.parametrize("fault", ["lost response", "lost request", "coordinator moved"])
def test_after_an_error_the_heartbeat_has_all_fields_again(fakes: Any, fault: str) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=1_000)
            if fault == "coordinator moved":
                coordinator.errors = [NotCoordinatorError]
            else:
                lost = fakes.fault(lose_answer=fault == "lost response", lose_request=fault == "lost request")
                cluster.faults[ApiKey.CONSUMER_GROUP_HEARTBEAT].append(lost)
            found = [api for api, _ in cluster.asked].count(ApiKey.FIND_COORDINATOR)
            await consumer.getmany(timeout_ms=INTERVAL_MS)
            assert [api for api, _ in cluster.asked].count(ApiKey.FIND_COORDINATOR) == found + 1
            assert len(consumer.assignment()) == 2
            assert (coordinator.requests[-1].subscribed_topic_names, coordinator.owned()[-1]) == (("t",), [0, 1])
            assert coordinator.epochs()[-1] == 1

    run_virtual(main())


def test_a_change_of_the_subscription_is_sent_at_once(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2, "u": 1})
    coordinator = AssigningCoordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=1_000)
            consumer.subscribe(["u", "t"])
            await consumer.getmany(timeout_ms=100)
            assert coordinator.requests[-1].subscribed_topic_names == ("t", "u")
            assert coordinator.owned()[-1] is None

    run_virtual(main())


def test_a_pattern_is_resolved_by_the_coordinator(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2, "u": 1})
    coordinator = AssigningCoordinator(cluster)
    coordinator.target = [("u", 0)]

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(pattern=SubscriptionPattern("u.*"))
            await consumer.getmany(timeout_ms=1_000)
            assert consumer.assignment() == {TopicPartition("u", 0)}
            assert consumer.subscription() == set()
            with pytest.raises(ConfigError, match="unsubscribe first"):
                consumer.assign([TopicPartition("t", 0)])
            first = coordinator.requests[0]
            assert (first.subscribed_topic_names, first.subscribed_topic_regex) == ((), "u.*")
            coordinator.errors = [NotCoordinatorError]
            await consumer.getmany(timeout_ms=2 * INTERVAL_MS)
            assert [each.subscribed_topic_regex for each in coordinator.requests].count("u.*") == 2
            consumer.subscribe(pattern=SubscriptionPattern("u"))
            await consumer.getmany(timeout_ms=500)
            last = coordinator.requests[-1]
            assert (last.subscribed_topic_names, last.subscribed_topic_regex) == (None, "u")
            consumer.subscribe(pattern=SubscriptionPattern("("))
            coordinator.errors = [InvalidRegularExpressionError]
            with pytest.raises(InvalidRegularExpressionError, match=r"'\('.*syntax of RE2"):
                await consumer.getmany(timeout_ms=1_000)

    run_virtual(main())


def test_a_client_side_pattern_is_resolved_by_the_client(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2, "u": 1, "u2": 1})
    coordinator = AssigningCoordinator(cluster)
    coordinator.target = [("u", 0)]

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(pattern="u.*")
            await consumer.getmany(timeout_ms=1_000)
            assert consumer.assignment() == {TopicPartition("u", 0)}
            assert consumer.subscription() == {"u", "u2"}

    run_virtual(main())
    assert coordinator.requests[0].subscribed_topic_names == ("u", "u2")


def test_a_pattern_needs_the_protocol_and_a_broker_that_has_it(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fakes.cluster({"t": 2})
    AssigningCoordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            with pytest.raises(ConfigError, match="to topics and to a pattern"):
                consumer.subscribe(["t"], pattern=SubscriptionPattern("t"))
            consumer.subscribe(pattern="t")
            with pytest.raises(ConfigError, match="patterns of both kinds"):
                consumer.subscribe(pattern=SubscriptionPattern("t"))
            await consumer.unsubscribe()
            consumer.subscribe(pattern=SubscriptionPattern("t"))
            with pytest.raises(ConfigError, match="patterns of both kinds"):
                consumer.subscribe(pattern="t")
            await consumer.unsubscribe()
            # As a broker of Apache Kafka 3.9, which has version 0.
            monkeypatch.setattr(fakes.link, "pick", pick_of_kafka_3_9)
            consumer.subscribe(pattern=SubscriptionPattern("t"))
            with pytest.raises(UnsupportedVersionError, match="cannot resolve the regular expression"):
                await consumer.getmany(timeout_ms=1_000)
        async with consumer_of(cluster, group_protocol="classic") as consumer:
            with pytest.raises(ConfigError, match=r"group\.protocol=classic"):
                consumer.subscribe(pattern=SubscriptionPattern("t"))

    run_virtual(main())


def test_the_coordinator_can_choose_the_member_id(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    coordinator.chosen_id = "m1"

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=1_000)
            assert consumer.membership.member_id == "m1"

    run_virtual(main())
    assert [request.member_id for request in coordinator.requests[1:]] == ["m1", "m1"]


def test_closing_during_a_rebalance_leaves_the_group(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await consumer.getmany(timeout_ms=1_000)
            listener.slow_ms = 60_000
            coordinator.give(0)
            await consumer.getmany(timeout_ms=5_000)
            listener.slow_ms = 0

    run_virtual(main())
    assert listener.events == ["assigned [0, 1]", "revoked [1]", "revoked [0, 1]"]
    assert coordinator.epochs()[-1] == -1
    assert cluster.open_links == 0


def test_closing_while_the_coordinator_does_not_answer_sends_no_late_heartbeat(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)
    coordinator.errors = [NotCoordinatorError] * 50

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=500)
            coordinator.errors = []
        sent = len(coordinator.requests)
        await VirtualClock().sleep_ms(10 * INTERVAL_MS)
        assert len(coordinator.requests) == sent

    run_virtual(main())
    assert coordinator.epochs()[-1] == -1


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_a_cancelled_close_in_a_rebalance_leaves_nothing_open(fakes: Any, turns: int) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = AssigningCoordinator(cluster)

    async def main() -> None:
        consumer = consumer_of(cluster, "t")
        await consumer.start()
        await consumer.getmany(timeout_ms=1_000)
        coordinator.give(0)
        await VirtualClock().sleep_ms(INTERVAL_MS)
        closing = asyncio.ensure_future(consumer.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        await consumer.close()
        assert cluster.open_links == 0
        sent = len(coordinator.requests)
        await VirtualClock().sleep_ms(10 * INTERVAL_MS)
        assert len(coordinator.requests) == sent

    run_virtual(main())


def test_member_ids_are_random_and_do_not_start_with_a_dash() -> None:
    clock = ManualClock()
    ids = {new_member_id(clock) for _ in range(500)}
    assert len(ids) == 500
    assert {len(each) for each in ids} == {22}
    assert not any(each.startswith("-") for each in ids)
