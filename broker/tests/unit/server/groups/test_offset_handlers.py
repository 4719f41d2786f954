"""The handlers of committed offsets, with encoded requests of every supported version."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from odradek.base.errors import (
    NONE,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    NetworkError,
    NotCoordinatorError,
    ProtocolError,
    TransactionAbortableError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.security.principals import ANONYMOUS, Identity
from odradek.server.dispatch import RequestContext
from odradek_testkit.coordination import EVENTS, FULL_RANGE, OFFSETS_PARTITIONS, Server, virtual
from odradek_testkit.groups import SETTINGS


def versions(key: ApiKey, since: int = 0, until: int = 99) -> Any:
    return pytest.mark.parametrize("version", [v for v in FULL_RANGE[key] if since <= v <= until])


# OffsetCommit


@versions(ApiKey.OFFSET_COMMIT, since=1)
def test_commits_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        missing = TopicPartition("events", 2), TopicPartition("nothing", 0)
        codes = await server.commit(version, {EVENTS[0]: 5, missing[0]: 6, missing[1]: 7})
        unknown = UnknownTopicOrPartitionError.code
        assert codes == {EVENTS[0]: NONE, missing[0]: unknown, missing[1]: unknown}
        fetched = (await server.groups.fetch("group", None))[EVENTS[0]]
        assert (fetched.offset, fetched.metadata) == (5, "")
        assert fetched.leader_epoch == (4 if version >= 6 else -1)
        late = await server.commit(version, {EVENTS[0]: 9}, member_id="nobody", generation_id_or_member_epoch=3)
        assert late == {EVENTS[0]: UnknownMemberIdError.code}

    virtual(scenario)


@pytest.mark.parametrize(("timestamp", "is_gone"), [(-1, False), (-SETTINGS.offsets_retention_ms, True)])
def test_version_1_can_have_a_commit_time(timestamp: int, is_gone: bool) -> None:
    """The retention begins at the commit time."""

    async def scenario(server: Server) -> None:
        server.groups.start()
        partition = {
            "partition_index": 0,
            "committed_offset": 5,
            "committed_metadata": "",
            "commit_timestamp": timestamp,
        }
        message = {"group_id": "group", "member_id": "", "topics": [{"name": "events", "partitions": [partition]}]}
        answer = await server.ask(ApiKey.OFFSET_COMMIT, 1, message)
        assert answer.topics[0].partitions[0].error_code == NONE
        await server.clock.sleep_ms(2 * SETTINGS.retention_check_interval_ms)
        assert (EVENTS[0] not in await server.groups.fetch("group", None)) is is_gone

    virtual(scenario)


@versions(ApiKey.OFFSET_COMMIT, since=2)
def test_only_old_commits_have_a_retention_time(version: int) -> None:
    async def scenario(server: Server) -> None:
        server.groups.start()
        await server.commit(version, {EVENTS[0]: 5}, retention_time_ms=60_000)
        await server.clock.sleep_ms(2 * SETTINGS.retention_check_interval_ms)
        assert (EVENTS[0] in await server.groups.fetch("group", None)) is (version >= 5)

    virtual(scenario)


def test_an_empty_commit_has_an_empty_response() -> None:
    async def scenario(server: Server) -> None:
        assert await server.commit(9, {}) == {}

    virtual(scenario)


def fetch_message(topics: object, *, require_stable: bool = False, group_id: str = "group") -> dict[str, object]:
    return {
        "group_id": group_id,
        "topics": topics,
        "require_stable": require_stable,
        "groups": [{"group_id": group_id, "topics": topics, "member_id": None, "member_epoch": -1}],
    }


def fetched_offsets(answer: Any, version: int) -> tuple[int, dict[tuple[str, int], tuple[int, int]]]:
    place = answer.groups[0] if version >= 8 else answer
    found = {
        (topic.name, partition.partition_index): (partition.committed_offset, int(partition.error_code))
        for topic in place.topics
        for partition in topic.partitions
    }
    return place.error_code, found


@versions(ApiKey.OFFSET_FETCH, since=1)
def test_fetches_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        await server.commit(9, {EVENTS[0]: 5})
        asked = [{"name": "events", "partition_indexes": [0, 1]}, {"name": "nothing", "partition_indexes": [0]}]
        answer = await server.ask(ApiKey.OFFSET_FETCH, version, fetch_message(asked))
        expected = {("events", 0): (5, NONE), ("events", 1): (-1, NONE), ("nothing", 0): (-1, NONE)}
        assert fetched_offsets(answer, version) == (NONE, expected)
        if version >= 2:
            everything = await server.ask(ApiKey.OFFSET_FETCH, version, fetch_message(None))
            assert fetched_offsets(everything, version) == (NONE, {("events", 0): (5, NONE)})

    virtual(scenario)


@versions(ApiKey.OFFSET_FETCH, until=0)
def test_the_oldest_version_means_zookeeper(version: int) -> None:
    async def scenario(server: Server) -> None:
        codes = await server.commit(version, {EVENTS[0]: 5, TopicPartition("nothing", 0): 7})
        assert codes == {EVENTS[0]: NONE, TopicPartition("nothing", 0): UnknownTopicOrPartitionError.code}
        assert (await server.zk.get("/consumers/group/offsets/events/0"))[0] == b"5"
        assert await server.groups.fetch("group", None) == {}
        asked = [{"name": "events", "partition_indexes": [0, 1]}, {"name": "nothing", "partition_indexes": [0]}]
        answer = await server.ask(ApiKey.OFFSET_FETCH, version, fetch_message(asked))
        unknown = (-1, UnknownTopicOrPartitionError.code)
        assert fetched_offsets(answer, version)[1] == {
            ("events", 0): (5, NONE),
            ("events", 1): unknown,
            ("nothing", 0): unknown,
        }

    virtual(scenario)


@versions(ApiKey.OFFSET_FETCH, since=1)
def test_offset_fetch_on_a_broker_that_is_not_the_coordinator(version: int) -> None:
    async def scenario(server: Server) -> None:
        asked = [{"name": "events", "partition_indexes": [0]}]
        answer = await server.ask(ApiKey.OFFSET_FETCH, version, fetch_message(asked))
        code, found = fetched_offsets(answer, version)
        if version >= 2:
            assert code == NotCoordinatorError.code
        else:
            assert found == {("events", 0): (-1, NotCoordinatorError.code)}

    virtual(scenario, leads=False)


@versions(ApiKey.OFFSET_FETCH, since=7)
def test_pending_offsets_are_an_error_for_require_stable(version: int) -> None:
    async def scenario(server: Server) -> None:
        release = asyncio.Event()
        server.partition.before_append = release.wait
        committing = asyncio.ensure_future(server.commit(9, {EVENTS[0]: 5}))
        await server.clock.sleep_ms(1)
        asked = [{"name": "events", "partition_indexes": [0]}]
        answer = await server.ask(ApiKey.OFFSET_FETCH, version, fetch_message(asked, require_stable=True))
        assert fetched_offsets(answer, version)[1] == {("events", 0): (-1, 88)}
        release.set()
        await committing

    virtual(scenario)


@versions(ApiKey.OFFSET_FETCH, since=8)
def test_several_groups_in_one_fetch(version: int) -> None:
    """Each group has its own topics, stability and error (KIP-709, KIP-447)."""

    async def scenario(server: Server) -> None:
        await server.lead()
        here = next(name for name in "abcdef" if server.groups.partition_for(name) == OFFSETS_PARTITIONS[0])
        elsewhere = next(name for name in "abcdef" if server.groups.partition_for(name) == OFFSETS_PARTITIONS[1])
        server.groups.on_follower(OFFSETS_PARTITIONS[1])
        await server.commit(9, {EVENTS[0]: 5, EVENTS[1]: 6}, group_id=here)
        assert await commit_transactional(server, 4, {EVENTS[0]: 7}, group_id=here) == {EVENTS[0]: NONE}
        one = [{"name": "events", "partition_indexes": [0]}]
        wanted = [(here, None), (here, one), (elsewhere, None)]
        message = {
            "require_stable": True,
            "groups": [
                {"group_id": name, "topics": topics, "member_id": None, "member_epoch": -1} for name, topics in wanted
            ],
        }
        answer = await server.ask(ApiKey.OFFSET_FETCH, version, message)
        found = [
            (
                group.group_id,
                int(group.error_code),
                {
                    (partition.partition_index, partition.committed_offset, int(partition.error_code))
                    for topic in group.topics
                    for partition in topic.partitions
                },
            )
            for group in answer.groups
        ]
        unstable = (0, -1, UnstableOffsetCommitError.code)
        assert found == [
            (here, NONE, {unstable, (1, 6, NONE)}),
            (here, NONE, {unstable}),
            (elsewhere, NotCoordinatorError.code, set()),
        ]

    virtual(scenario, leads=False)


# TxnOffsetCommit


async def commit_transactional(
    server: Server, version: int, offsets: Mapping[TopicPartition, int], **changes: Any
) -> dict[TopicPartition, int]:
    topics = tuple(
        TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=(
                TxnOffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offset, committed_leader_epoch=4, committed_metadata=None
                ),
            ),
        )
        for (topic, number), offset in offsets.items()
    )
    request = TxnOffsetCommitRequest(
        transactional_id="mine", group_id="group", producer_id=7, producer_epoch=2, topics=topics
    )
    context = RequestContext(
        api_key=ApiKey.TXN_OFFSET_COMMIT,
        api_version=version,
        client_id="tester",
        client_host="10.0.0.1",
        listener="PLAINTEXT",
        identity=Identity(ANONYMOUS, "10.0.0.1", "PLAINTEXT", "PLAINTEXT"),
    )
    answer: Any = await server.offsets.txn_offset_commit(context, replace(request, **changes))
    return {
        TopicPartition(topic["name"], partition["partition_index"]): partition["error_code"]
        for topic in answer["topics"]
        for partition in topic["partitions"]
    }


def test_transactional_commits_of_partitions_that_exist() -> None:
    async def scenario(server: Server) -> None:
        missing = TopicPartition("events", 2), TopicPartition("nothing", 0)
        codes = await commit_transactional(server, 4, {EVENTS[0]: 5, missing[0]: 6, missing[1]: 7})
        unknown = UnknownTopicOrPartitionError.code
        assert codes == {EVENTS[0]: NONE, missing[0]: unknown, missing[1]: unknown}
        assert server.partition.transactions == [TransactionalWriter("mine", 7, 2)]
        assert await server.groups.fetch("group", None) == {}
        server.groups.complete_transaction(server.groups.partition_for("group"), 7, True, server.partition.next_offset)
        fetched = (await server.groups.fetch("group", None))[EVENTS[0]]
        assert (fetched.offset, fetched.metadata, fetched.leader_epoch) == (5, "", 4)
        assert await commit_transactional(server, 4, {missing[0]: 6}) == {missing[0]: unknown}
        assert await commit_transactional(server, 4, {}) == {}

    virtual(scenario)


def test_transactional_commits_of_members() -> None:
    async def scenario(server: Server) -> None:
        joined = await server.stable(group_instance_id="static")
        member = {"member_id": joined.member_id, "generation_id": 1, "group_instance_id": "static"}
        assert await commit_transactional(server, 3, {EVENTS[0]: 5}, **member) == {EVENTS[0]: NONE}
        for changes, error in (
            ({"member_id": "nobody"}, FencedInstanceIdError),
            ({"member_id": "nobody", "group_instance_id": None}, UnknownMemberIdError),
            ({"generation_id": 0}, IllegalGenerationError),
        ):
            codes = await commit_transactional(server, 3, {EVENTS[0]: 5}, **(member | changes))
            assert codes == {EVENTS[0]: error.code}
        assert await commit_transactional(server, 3, {EVENTS[0]: 5}, group_id="") == {
            EVENTS[0]: InvalidGroupIdError.code
        }

    virtual(scenario)


@pytest.mark.parametrize("version", range(5))
def test_old_clients_get_codes_that_they_know(version: int) -> None:
    async def scenario(server: Server) -> None:
        for raised, before, since in (
            (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, 2),
            (NetworkError, CoordinatorNotAvailableError, 2),
            (TransactionAbortableError, InvalidTransactionStateError, 4),
            (InvalidProducerEpochError, None, 0),
        ):
            server.partition.failures.append(raised("no"))
            told = CoordinatorLoadInProgressError if raised is NetworkError else raised
            expected = before if before is not None and version < since else told
            assert await commit_transactional(server, version, {EVENTS[0]: 5}) == {EVENTS[0]: expected.code}

    virtual(scenario)


@pytest.mark.parametrize(("version", "error"), [(1, CoordinatorNotAvailableError), (2, CoordinatorLoadInProgressError)])
def test_a_transactional_commit_while_the_partition_is_loading(version: int, error: type[ProtocolError]) -> None:
    async def scenario(server: Server) -> None:
        assert await commit_transactional(server, version, {EVENTS[0]: 5}) == {EVENTS[0]: NotCoordinatorError.code}
        leading = asyncio.ensure_future(server.lead())
        await asyncio.sleep(0)
        assert await commit_transactional(server, version, {EVENTS[0]: 5}) == {EVENTS[0]: error.code}
        await leading

    virtual(scenario, leads=False)


# OffsetDelete


async def delete_offsets(server: Server, group_id: str, *partitions: TopicPartition) -> Any:
    topics = [{"name": topic, "partitions": [{"partition_index": number}]} for topic, number in partitions]
    return await server.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": group_id, "topics": topics})


def codes_by_partition(answer: Any) -> dict[TopicPartition, int]:
    rows = [(topic.name, row) for topic in answer.topics for row in topic.partitions]
    return {TopicPartition(name, row.partition_index): int(row.error_code) for name, row in rows}


def test_offsets_are_deleted_of_partitions_that_exist() -> None:
    async def scenario(server: Server) -> None:
        await server.commit(9, {EVENTS[0]: 5, EVENTS[1]: 6}, group_id="stored")
        missing = TopicPartition("missing", 0)
        answer = await delete_offsets(server, "stored", EVENTS[0], missing)
        assert answer.error_code == NONE
        assert codes_by_partition(answer) == {EVENTS[0]: NONE, missing: UnknownTopicOrPartitionError.code}
        assert set(await server.groups.fetch("stored", None)) == {EVENTS[1]}

    virtual(scenario)


def test_offsets_of_consumed_topics_are_not_deleted() -> None:
    async def scenario(server: Server) -> None:
        await server.stable()
        answer = await delete_offsets(server, "group", EVENTS[0])
        assert answer.error_code == NONE
        assert codes_by_partition(answer) == {EVENTS[0]: GroupSubscribedToTopicError.code}

    virtual(scenario)


@pytest.mark.parametrize(("group_id", "error"), [("nobody", GroupIdNotFoundError), ("", InvalidGroupIdError)])
def test_deletion_of_offsets_of_an_unknown_group(group_id: str, error: type[ProtocolError]) -> None:
    async def scenario(server: Server) -> None:
        for partitions in ((EVENTS[0],), ()):
            answer = await delete_offsets(server, group_id, *partitions)
            assert (answer.error_code, answer.topics) == (error.code, ())

    virtual(scenario)
