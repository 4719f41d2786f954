"""Groups with the admin client: filters, offsets, lag in records and in time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final
from uuid import UUID

import pytest

from odradek.base.errors import (
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.client.models import GroupLag, GroupListing, OffsetAndMetadata
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.records.first_record import FIRST_LIMIT_BYTES
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek_testkit.loop import WALL_START_MS, VirtualClock, run_virtual

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))
GONE: Final = TopicPartition("gone", 0)


def with_admin(fake: Any, work: Callable[[Admin], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        settings = ClientSettings.of("fake:9001", default_api_timeout_ms=3_000)
        async with Cluster(settings, clock=VirtualClock(), connect=fake.connect) as cluster:
            await work(Admin(settings, cluster=cluster))

    run_virtual(main())


def answer_per_partition(codes: dict[TopicPartition, int], seen: list[Any], **rest: Any) -> Callable[[Any], Any]:
    """Return an answer to OffsetCommit or OffsetDelete with the error codes, which collects the requests in `seen`."""

    def answer(request: Any) -> dict[str, Any]:
        seen.append(request)
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": item.partition_index,
                        "error_code": codes[TopicPartition(topic.name, item.partition_index)],
                    }
                    for item in topic.partitions
                ],
            }
            for topic in request.topics
        ]
        return {"topics": topics, **rest}

    return answer


def committed_answer(offsets: dict[TopicPartition, int]) -> Callable[[Any], dict[str, Any]]:
    def answer(request: Any) -> dict[str, Any]:
        rows = [
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
            for partition, offset in offsets.items()
        ]
        return {"groups": [{"group_id": request.groups[0].group_id, "topics": rows, "error_code": 0}]}

    return answer


def append(fake: Any, partition: TopicPartition, *timestamps: int, size: int = 1) -> None:
    builder = BatchBuilder(limit_bytes=1 << 22)
    for timestamp in timestamps:
        builder.append(None, b"x" * size, timestamp_ms=timestamp)
    fake.logs[partition].append(memoryview(builder.build()))


def append_marker(fake: Any, partition: TopicPartition) -> None:
    content = marker_batch(ControlType.COMMIT, producer_id=-1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
    fake.logs[partition].append(memoryview(content))


def test_groups_are_filtered_by_their_coordinators(fakes: Any) -> None:
    fake, seen = fakes.cluster({"t": 1}), []

    def answer(request: Any) -> dict[str, Any]:
        seen.append((request.states_filter, request.types_filter))
        group = {"group_id": "g", "protocol_type": "consumer", "group_state": "Empty", "group_type": "classic"}
        return {"error_code": 0, "groups": [group]}

    fake.answers[ApiKey.LIST_GROUPS] = answer

    async def work(admin: Admin) -> None:
        found = await admin.list_groups(states=["empty"], types=["classic"])
        assert found == [GroupListing(group_id="g", protocol_type="consumer", state="Empty", group_type="classic")] * 2

    with_admin(fake, work)
    assert seen == [(("empty",), ("classic",))] * 2


def test_offsets_are_set_without_a_member(fakes: Any) -> None:
    fake, seen = fakes.cluster({"t": 2}), []
    codes = {FIRST: 0, SECOND: OffsetMetadataTooLargeError.code}
    fake.answers[ApiKey.OFFSET_COMMIT] = answer_per_partition(codes, seen)

    async def work(admin: Admin) -> None:
        outcomes = await admin.alter_group_offsets("g", {FIRST: 5, SECOND: OffsetAndMetadata(6, "x" * 5000)})
        assert outcomes[FIRST] is None
        assert isinstance(outcomes[SECOND], OffsetMetadataTooLargeError)
        assert await admin.alter_group_offsets("g", {}) == {}

    with_admin(fake, work)
    (request,) = seen
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    assert [item.committed_offset for item in request.topics[0].partitions] == [5, 6]


def test_offsets_of_a_group_with_members_are_not_set(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})
    fake.answers[ApiKey.OFFSET_COMMIT] = answer_per_partition({FIRST: UnknownMemberIdError.code}, [])

    async def work(admin: Admin) -> None:
        with pytest.raises(UnknownMemberIdError):
            await admin.alter_group_offsets("g", {FIRST: 5})

    with_admin(fake, work)


def test_offsets_are_deleted_with_an_outcome_for_each_partition(fakes: Any) -> None:
    fake, seen = fakes.cluster({"t": 2}), []
    codes = {FIRST: 0, SECOND: GroupSubscribedToTopicError.code}
    loading = [{"error_code": CoordinatorLoadInProgressError.code, "topics": []}]
    answer = answer_per_partition(codes, seen, error_code=0)
    fake.answers[ApiKey.OFFSET_DELETE] = lambda request: loading.pop() if loading else answer(request)

    async def work(admin: Admin) -> None:
        outcomes = await admin.delete_group_offsets("g", [FIRST, SECOND])
        assert outcomes[FIRST] is None
        assert isinstance(outcomes[SECOND], GroupSubscribedToTopicError)
        assert await admin.delete_group_offsets("g", []) == {}

    with_admin(fake, work)
    assert len(seen) == 1


def test_a_group_that_does_not_exist_has_no_offsets_to_delete(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})
    fake.answers[ApiKey.OFFSET_DELETE] = lambda request: {"error_code": GroupIdNotFoundError.code, "topics": []}

    async def work(admin: Admin) -> None:
        with pytest.raises(GroupIdNotFoundError):
            await admin.delete_group_offsets("g", [FIRST])

    with_admin(fake, work)


def test_lag_in_records_and_in_time(fakes: Any) -> None:
    fake = fakes.cluster({"t": 3})
    now_ms = WALL_START_MS
    append(fake, FIRST, now_ms - 9_000, now_ms - 7_000, now_ms - 5_000)
    append(fake, SECOND, now_ms - 1_000)
    append(fake, THIRD, now_ms + 60_000)
    fake.answers[ApiKey.OFFSET_FETCH] = committed_answer({FIRST: 1, SECOND: 9, THIRD: 0, GONE: 4})

    async def work(admin: Admin) -> None:
        lags = await admin.group_lag("g")
        assert lags[FIRST].records == 2
        assert 7_000 <= (lags[FIRST].time_ms or 0) <= 7_100
        # The commit is after the end; the record has a time in the future; the topic does not exist.
        assert (lags[SECOND].records, lags[SECOND].time_ms) == (0, 0)
        assert (lags[THIRD].records, lags[THIRD].time_ms) == (1, 0)
        assert lags[GONE] == GroupLag(OffsetAndMetadata(4), None)
        without = await admin.group_lag("g", with_time=False)
        assert (without[FIRST].time_ms, without[SECOND].time_ms) == (None, 0)

    with_admin(fake, work)
    # One leader has both partitions with lag.
    assert [node for api, node in fake.asked if api is ApiKey.FETCH] == [1]


def test_partitions_of_the_caller_need_no_commit(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})
    append(fake, FIRST, 5)
    fake.answers[ApiKey.OFFSET_FETCH] = committed_answer({})

    async def work(admin: Admin) -> None:
        assert await admin.group_lag("g", [FIRST]) == {FIRST: GroupLag(None, 1)}
        assert await admin.group_lag("g") == {}

    with_admin(fake, work)


def test_large_batches_and_markers_take_more_fetches(fakes: Any) -> None:
    fake = fakes.cluster({"t": 3}, nodes=1)
    now_ms = WALL_START_MS
    for partition in (FIRST, SECOND):
        append(fake, partition, now_ms - 4_000, size=2 * FIRST_LIMIT_BYTES)
    append_marker(fake, THIRD)
    append_marker(fake, THIRD)
    fake.answers[ApiKey.OFFSET_FETCH] = committed_answer({FIRST: 0, SECOND: 0, THIRD: 0})

    async def work(admin: Admin) -> None:
        lags = await admin.group_lag("g")
        assert all(4_000 <= (lags[partition].time_ms or 0) <= 4_100 for partition in (FIRST, SECOND))
        # Only markers follow: they count as Kafka counts them, but there is no record to be read.
        assert (lags[THIRD].records, lags[THIRD].time_ms) == (2, 0)

    with_admin(fake, work)


def test_times_that_may_not_be_read_are_unknown(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})
    append(fake, FIRST, 5)
    fake.faults[ApiKey.FETCH].append(fakes.fault(code=TopicAuthorizationFailedError.code))
    fake.answers[ApiKey.OFFSET_FETCH] = committed_answer({FIRST: 0})

    async def work(admin: Admin) -> None:
        assert (await admin.group_lag("g"))[FIRST] == GroupLag(OffsetAndMetadata(0), 1)

    with_admin(fake, work)


def consumer_group_answer(request: Any) -> dict[str, Any]:
    """Return an answer to ConsumerGroupDescribe for a coordinator that has one group, `g`."""

    def partitions(*numbers: int) -> dict[str, Any]:
        return {"topic_partitions": [{"topic_id": UUID(int=1), "topic_name": "t", "partitions": numbers}]}

    member = {
        "member_id": "m1",
        "instance_id": None,
        "rack_id": "r1",
        "member_epoch": 3,
        "client_id": "c",
        "client_host": "/10.0.0.1",
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": "",
        "assignment": partitions(1, 0),
        "target_assignment": partitions(0),
        "member_type": 1,
    }
    found = {
        "error_code": 0,
        "group_id": "g",
        "group_state": "Reconciling",
        "group_epoch": 4,
        "assignment_epoch": 4,
        "assignor_name": "uniform",
        "members": [member],
    }
    unknown = {
        "error_code": GroupIdNotFoundError.code,
        "group_id": request.group_ids[0],
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }
    return {"groups": [found if request.group_ids == ("g",) else unknown]}


def test_consumer_groups_are_described_with_epochs_and_both_assignments(fakes: Any) -> None:
    fake = fakes.cluster({"t": 2})
    fake.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = consumer_group_answer

    async def work(admin: Admin) -> None:
        group = (await admin.describe_consumer_groups(["g"]))["g"]
        assert (group.state, group.group_epoch, group.assignment_epoch, group.assignor) == (
            "Reconciling",
            4,
            4,
            "uniform",
        )
        member = group.members[0]
        assert (member.member_epoch, member.rack_id, member.is_classic) == (3, "r1", False)
        assert (member.subscribed_topics, member.subscribed_regex) == (("t",), None)
        assert (member.assignment, member.target_assignment) == ((FIRST, SECOND), (FIRST,))
        with pytest.raises(GroupIdNotFoundError):
            await admin.describe_consumer_groups(["classic"])

    with_admin(fake, work)


def test_groups_of_both_types_are_described(fakes: Any) -> None:
    fake = fakes.cluster({"t": 2})
    fake.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = consumer_group_answer

    def classic(request: Any) -> dict[str, Any]:
        group = {
            "error_code": 0,
            "group_id": request.groups[0],
            "group_state": "Stable",
            "protocol_type": "consumer",
            "protocol_data": "range",
            "members": [],
        }
        return {"groups": [group]}

    fake.answers[ApiKey.DESCRIBE_GROUPS] = classic

    async def work(admin: Admin) -> None:
        found = await admin.describe_groups(["g", "old"])
        assert [(each.group_type, each.protocol_type, each.protocol) for each in found.values()] == [
            ("consumer", "consumer", "uniform"),
            ("classic", "consumer", "range"),
        ]
        assert found["g"].members[0].assignment == (FIRST, SECOND)

    with_admin(fake, work)
