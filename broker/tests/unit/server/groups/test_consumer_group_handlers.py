"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, with encoded requests of each version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.base.errors import (
    NONE,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    InvalidRequestError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.server.authorization.authorizer import NOT_REQUESTED, all_operations
from odradek.server.groups.consumer_group_handlers import ConsumerGroupHandlers
from odradek_testkit.coordination import EVENTS, FULL_RANGE, STATE, Server, virtual
from odradek_testkit.groups import SETTINGS
from odradek_testkit.security.grants import MINE, SECRET, Grants

EVENTS_ID, MINE_ID, SECRET_ID = UUID(int=1), UUID(int=2), UUID(int=3)
versions = pytest.mark.parametrize("version", FULL_RANGE[ApiKey.CONSUMER_GROUP_HEARTBEAT])


def with_ids(server: Server) -> None:
    """Give the topics ids, and create two more."""
    topics = [(partition, EVENTS_ID) for partition in EVENTS]
    topics += [(TopicPartition(MINE, 0), MINE_ID), (TopicPartition(SECRET, 0), SECRET_ID)]
    image = server.view.image
    server.view.image = image.updated(
        controller_id=1,
        brokers=image.brokers.values(),
        partitions=[(partition, topic_id, STATE) for partition, topic_id in topics],
    )


async def heartbeat(server: Server, version: int, epoch: int, **changes: object) -> Any:
    joining: Message = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["events"],
        "topic_partitions": [],
    }
    message: Message = {"group_id": "group", "member_id": "one", "member_epoch": epoch}
    message = {**message, **(joining if epoch == 0 else {}), **changes}
    return await server.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, message)


async def describe(server: Server, version: int, *group_ids: str, **changes: object) -> Any:
    message: Message = {"group_ids": group_ids, "include_authorized_operations": False, **changes}
    return (await server.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, message)).groups


@versions
def test_a_member_joins_stays_and_leaves(version: int) -> None:
    async def scenario(server: Server) -> None:
        with_ids(server)
        joined = await heartbeat(server, version, 0)
        assert (joined.error_code, joined.error_message, joined.member_id) == (NONE, None, "one")
        assert (joined.member_epoch, joined.heartbeat_interval_ms) == (1, 5000)
        (topic,) = joined.assignment.topic_partitions
        assert (topic.topic_id, topic.partitions) == (EVENTS_ID, (0, 1))
        owned = [{"topic_id": EVENTS_ID, "partitions": [0, 1]}]
        stayed = await heartbeat(server, version, 1, topic_partitions=owned)
        assert (stayed.error_code, stayed.member_epoch, stayed.assignment) == (NONE, 1, None)
        left = await heartbeat(server, version, -1)
        assert (left.error_code, left.member_epoch, left.assignment) == (NONE, -1, None)

    virtual(scenario)


def test_the_broker_generates_the_member_id_in_version_0() -> None:
    async def scenario(server: Server) -> None:
        with_ids(server)
        joined = await heartbeat(server, 0, 0, member_id="")
        assert (joined.error_code, len(joined.member_id)) == (NONE, 36)
        refused = await heartbeat(server, 1, 0, member_id="")
        assert refused.error_code == InvalidRequestError.code
        assert refused.error_message

    virtual(scenario)


def test_errors_have_messages() -> None:
    async def scenario(server: Server) -> None:
        unknown = await heartbeat(server, 1, 4)
        assert (unknown.error_code, unknown.member_id) == (GroupIdNotFoundError.code, None)
        assert unknown.error_message == "Group 'group' does not exist."
        assert (await heartbeat(server, 1, 0, group_id="")).error_code == InvalidRequestError.code
        (nameless,) = await describe(server, 1, "")
        assert nameless.error_code == InvalidGroupIdError.code
        await heartbeat(server, 1, 0)
        assert (await heartbeat(server, 1, 1, member_id="two")).error_code == UnknownMemberIdError.code

    virtual(scenario)


def test_consumer_groups_can_be_disabled() -> None:
    async def scenario(server: Server) -> None:
        server.groups._settings = replace(SETTINGS, consumer=replace(SETTINGS.consumer, is_enabled=False))
        assert (await heartbeat(server, 1, 0)).error_code == UnsupportedVersionError.code
        (group,) = await describe(server, 1, "group")
        assert group.error_code == UnsupportedVersionError.code

    virtual(scenario)


@versions
def test_groups_are_described(version: int) -> None:
    async def scenario(server: Server) -> None:
        with_ids(server)
        await heartbeat(
            server, version, 0, instance_id="static", rack_id="rack", subscribed_topic_names=["events", "absent"]
        )
        found = await describe(server, version, "group", "nobody", "group")
        group, nobody = found
        assert (group.error_code, group.group_state, group.assignor_name) == (NONE, "Stable", "uniform")
        assert (group.group_epoch, group.assignment_epoch, group.authorized_operations) == (1, 1, NOT_REQUESTED)
        (member,) = group.members
        assert (member.member_id, member.instance_id, member.rack_id) == ("one", "static", "rack")
        assert (member.member_epoch, member.client_id, member.client_host) == (1, "tester", "/10.0.0.1")
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("absent", "events"), None)
        for assignment in (member.assignment, member.target_assignment):
            (topic,) = assignment.topic_partitions
            assert (topic.topic_id, topic.topic_name, topic.partitions) == (EVENTS_ID, "events", (0, 1))
        assert member.member_type == (1 if version >= 1 else -1)
        assert (nobody.error_code, nobody.group_id) == (GroupIdNotFoundError.code, "nobody")
        assert nobody.error_message == "Group 'nobody' does not exist."
        (allowed,) = await describe(server, version, "group", include_authorized_operations=True)
        assert allowed.authorized_operations == all_operations(ResourceType.GROUP)

    virtual(scenario)


def test_a_regular_expression_matches_only_topics_that_the_client_may_describe() -> None:
    async def scenario(server: Server) -> None:
        with_ids(server)
        server.handlers |= ConsumerGroupHandlers(
            groups=server.groups,
            view=server.view,
            clock=server.clock,
            heartbeat_interval_ms=5000,
            authorizer=Grants((AclOperation.DESCRIBE, ResourceType.TOPIC)),
        ).handlers()
        joined = await heartbeat(server, 1, 0, subscribed_topic_names=None, subscribed_topic_regex=".*")
        assert [topic.topic_id for topic in joined.assignment.topic_partitions] == [MINE_ID]

    virtual(scenario)


def test_consumer_groups_are_listed_with_their_type() -> None:
    async def scenario(server: Server) -> None:
        with_ids(server)
        await heartbeat(server, 1, 0)
        await server.member(9, "classic")
        for types, names in (([], {"group", "classic"}), (["Consumer"], {"group"}), (["classic"], {"classic"})):
            listed = await server.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": types})
            assert {group.group_id for group in listed.groups} == names
        listed = await server.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": ["stable"], "types_filter": []})
        assert [(group.group_id, group.group_type, group.group_state) for group in listed.groups] == [
            ("group", "consumer", "Stable")
        ]
        (described,) = (await server.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["group"]})).groups
        assert (described.error_code, described.group_state, described.members) == (NONE, "Dead", ())

    virtual(scenario)


def test_members_commit_and_fetch_with_their_epoch_from_version_9() -> None:
    async def scenario(server: Server) -> None:
        with_ids(server)
        await heartbeat(server, 1, 0)
        member: Message = {"member_id": "one", "generation_id_or_member_epoch": 1}
        stale: Message = {**member, "generation_id_or_member_epoch": 0}
        assert await server.commit(9, {EVENTS[0]: 5}, **member) == {EVENTS[0]: NONE}
        assert await server.commit(9, {EVENTS[0]: 5}, **stale) == {EVENTS[0]: StaleMemberEpochError.code}
        assert await server.commit(8, {EVENTS[0]: 5}, **member) == {EVENTS[0]: UnsupportedVersionError.code}
        topics = [{"name": "events", "partition_indexes": [0]}]
        for member_id, epoch, code in (
            (None, -1, NONE),
            ("one", 1, NONE),
            ("one", 0, StaleMemberEpochError.code),
            ("two", 1, UnknownMemberIdError.code),
        ):
            group = {"group_id": "group", "member_id": member_id, "member_epoch": epoch, "topics": topics}
            (row,) = (await server.ask(ApiKey.OFFSET_FETCH, 9, {"groups": [group], "require_stable": True})).groups
            assert row.error_code == code
            assert [part.committed_offset for topic in row.topics for part in topic.partitions] == [5][: not code]

    virtual(scenario)
