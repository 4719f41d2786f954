"""FindCoordinator and the handlers of groups, with encoded requests of every supported version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.base.errors import (
    NONE,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    NotCoordinatorError,
    UnknownMemberIdError,
)
from odradek.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from odradek.protocol.apis import ApiKey
from odradek.security.acls.model import ResourceType
from odradek.server.authorization.authorizer import NOT_REQUESTED, all_operations
from odradek_testkit.coordination import (
    EVENTS,
    FULL_RANGE,
    METADATA,
    OFFSETS_PARTITIONS,
    TRANSACTIONS_PARTITION,
    Server,
    image,
    virtual,
)


def versions(key: ApiKey, since: int = 0, until: int = 99) -> Any:
    return pytest.mark.parametrize("version", [v for v in FULL_RANGE[key] if since <= v <= until])


def test_every_api_of_the_coordinators_has_a_handler() -> None:
    async def scenario(server: Server) -> None:
        assert {key.name for key in {*server.handlers, *server.direct}} == {
            "FIND_COORDINATOR",
            "JOIN_GROUP",
            "SYNC_GROUP",
            "HEARTBEAT",
            "LEAVE_GROUP",
            "OFFSET_COMMIT",
            "OFFSET_FETCH",
            "LIST_GROUPS",
            "DESCRIBE_GROUPS",
            "DELETE_GROUPS",
            "OFFSET_DELETE",
            "TXN_OFFSET_COMMIT",
            "CONSUMER_GROUP_HEARTBEAT",
            "CONSUMER_GROUP_DESCRIBE",
        }

    virtual(scenario)


# FindCoordinator


async def find(server: Server, version: int, key: str = "group", key_type: int = 0, listener: str = "PLAINTEXT") -> Any:
    message: dict[str, object] = {"key": key, "key_type": key_type, "coordinator_keys": [key]}
    answer = await server.ask(ApiKey.FIND_COORDINATOR, version, message, listener)
    return answer.coordinators[0] if version >= 4 else answer


@versions(ApiKey.FIND_COORDINATOR)
def test_the_leader_of_the_groups_partition_on_the_listener_of_the_client(version: int) -> None:
    async def scenario(server: Server) -> None:
        for listener, host, port in (("PLAINTEXT", "outside", 9092), ("INTERNAL", "inside", 9091)):
            found = await find(server, version, listener=listener)
            assert (found.error_code, found.node_id, found.host, found.port) == (NONE, 1, host, port)
        assert server.ensured == []

    virtual(scenario)


@versions(ApiKey.FIND_COORDINATOR)
def test_the_offsets_topic_is_created_by_the_first_find_coordinator(version: int) -> None:
    async def scenario(server: Server) -> None:
        server.view.image = image()
        found = await find(server, version)
        assert (found.error_code, found.node_id, found.host, found.port) == (
            CoordinatorNotAvailableError.code,
            -1,
            "",
            -1,
        )
        server.refusal = InvalidReplicationFactorError("too few brokers")
        assert (await find(server, version)).error_code == CoordinatorNotAvailableError.code
        assert server.ensured == [GROUP_METADATA_TOPIC] * 2

    virtual(scenario)


@versions(ApiKey.FIND_COORDINATOR, since=1)
def test_coordinators_of_other_kinds(version: int) -> None:
    async def scenario(server: Server) -> None:
        missing = await find(server, version, key_type=1)
        assert (missing.error_code, missing.node_id) == (CoordinatorNotAvailableError.code, -1)
        assert server.ensured == [TRANSACTION_STATE_TOPIC]
        server.view.image = image(TRANSACTIONS_PARTITION)
        found = await find(server, version, key_type=1)
        assert (found.error_code, found.node_id, found.host) == (NONE, 1, "outside")
        assert (await find(server, version, key_type=2)).error_code == InvalidRequestError.code
        assert server.ensured == [TRANSACTION_STATE_TOPIC]

    virtual(scenario)


def test_several_coordinators_at_once() -> None:
    async def scenario(server: Server) -> None:
        message = {"key_type": 0, "coordinator_keys": ["a", "b"]}
        answer = await server.ask(ApiKey.FIND_COORDINATOR, 4, message)
        assert [(item.key, item.node_id) for item in answer.coordinators] == [("a", 1), ("b", 1)]

    virtual(scenario)


# Members


@versions(ApiKey.JOIN_GROUP)
def test_join_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        first = await server.join(version)
        if version >= 4:
            assert first.error_code == MemberIdRequiredError.code
            assert first.generation_id == -1
            first = await server.join(version, member_id=first.member_id)
        assert (first.error_code, first.generation_id, first.protocol_name) == (NONE, 1, "range")
        assert first.member_id == first.leader
        assert first.member_id.startswith("tester-")
        assert [(member.member_id, member.metadata) for member in first.members] == [(first.member_id, METADATA)]
        if version >= 7:
            assert first.protocol_type == "consumer"
        described = await server.groups.describe("group")
        assert described.members[0].client_host == "/10.0.0.1"

    virtual(scenario)


@versions(ApiKey.JOIN_GROUP)
def test_a_refused_join_names_the_member_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        unknown = await server.join(version, member_id="somebody")
        assert (unknown.error_code, unknown.member_id) == (UnknownMemberIdError.code, "somebody")
        assert unknown.protocol_name == (None if version >= 7 else "")
        assert unknown.leader == ""
        short = await server.join(version, session_timeout_ms=1)
        assert short.error_code == InvalidSessionTimeoutError.code
        assert (await server.join(version, "")).error_code == InvalidGroupIdError.code

    virtual(scenario)


def test_the_oldest_join_uses_the_session_timeout_for_rebalances() -> None:
    async def scenario(server: Server) -> None:
        await server.join(0)
        server.view.image = image(*EVENTS, *OFFSETS_PARTITIONS)
        started_ms = server.clock.monotonic_ms()
        await server.join(0)
        assert 9_000 <= server.clock.monotonic_ms() - started_ms <= 11_000

    virtual(scenario)


@versions(ApiKey.JOIN_GROUP, since=5)
def test_a_static_member_rejoins_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        joined = await server.stable(group_instance_id="static")
        back = await server.join(version, group_instance_id="static")
        assert (back.error_code, back.generation_id) == (NONE, 1)
        assert back.member_id != joined.member_id
        if version >= 9:
            assert (back.leader, back.skip_assignment) == (back.member_id, True)
        else:
            assert back.leader == joined.member_id
        message = {
            "group_id": "group",
            "generation_id": 1,
            "member_id": joined.member_id,
            "group_instance_id": "static",
        }
        fenced = await server.ask(ApiKey.HEARTBEAT, 3, message)
        assert fenced.error_code == FencedInstanceIdError.code

    virtual(scenario)


@versions(ApiKey.SYNC_GROUP)
def test_sync_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        joined = await server.member(3)
        synced = await server.sync(version, joined)
        assert (synced.error_code, synced.assignment) == (NONE, b"mine")
        unknown = await server.sync(version, joined, member_id="nobody")
        assert (unknown.error_code, unknown.assignment) == (UnknownMemberIdError.code, b"")
        if version >= 5:
            assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
            incomplete = await server.sync(version, joined, protocol_name=None)
            assert incomplete.error_code == InconsistentGroupProtocolError.code
            assert incomplete.protocol_name is None

    virtual(scenario)


@versions(ApiKey.HEARTBEAT)
def test_heartbeats_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        joined = await server.stable()
        message: dict[str, object] = {
            "group_id": "group",
            "generation_id": 1,
            "member_id": joined.member_id,
            "group_instance_id": None,
        }
        assert (await server.ask(ApiKey.HEARTBEAT, version, message)).error_code == NONE
        other = message | {"member_id": "nobody"}
        assert (await server.ask(ApiKey.HEARTBEAT, version, other)).error_code == UnknownMemberIdError.code

    virtual(scenario)


@versions(ApiKey.LEAVE_GROUP)
def test_leaving_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        joined = await server.stable()
        identities = [
            {"member_id": joined.member_id, "group_instance_id": None, "reason": "done"},
            {"member_id": "", "group_instance_id": "nobody", "reason": None},
        ]
        message = {"group_id": "group", "member_id": joined.member_id, "members": identities}
        left = await server.ask(ApiKey.LEAVE_GROUP, version, message)
        assert left.error_code == NONE
        if version >= 3:
            assert [item.error_code for item in left.members] == [NONE, UnknownMemberIdError.code]
            assert [item.group_instance_id for item in left.members] == [None, "nobody"]
        else:
            again = await server.ask(ApiKey.LEAVE_GROUP, version, message)
            assert again.error_code == UnknownMemberIdError.code
        assert (await server.groups.describe("group")).state == "Empty"

    virtual(scenario)


# Whole groups


@versions(ApiKey.LIST_GROUPS)
def test_lists_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        await server.stable()
        await server.commit(9, {EVENTS[0]: 5}, group_id="stored")

        async def listed(states: list[str], types: list[str]) -> dict[str, Any]:
            message = {"states_filter": states, "types_filter": types}
            answer = await server.ask(ApiKey.LIST_GROUPS, version, message)
            assert answer.error_code == NONE
            return {group.group_id: group for group in answer.groups}

        everything = await listed([], [])
        assert {name: group.protocol_type for name, group in everything.items()} == {"group": "consumer", "stored": ""}
        if version >= 4:
            assert everything["group"].group_state == "Stable"
            assert set(await listed(["empty"], [])) == {"stored"}
        if version >= 5:
            assert everything["group"].group_type == "classic"
            assert await listed([], ["consumer"]) == {}

    virtual(scenario)


def test_a_list_says_that_more_may_come() -> None:
    async def scenario(server: Server) -> None:
        server.partition.before_read = asyncio.Event().wait
        await server.lead()
        answer = await server.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
        assert (answer.error_code, answer.groups) == (CoordinatorLoadInProgressError.code, ())

    virtual(scenario, leads=False)


@versions(ApiKey.DESCRIBE_GROUPS)
def test_descriptions_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        joined = await server.stable(group_instance_id="static")
        message = {"groups": ["group", "nobody"], "include_authorized_operations": True}
        answer = await server.ask(ApiKey.DESCRIBE_GROUPS, version, message)
        known, unknown = answer.groups
        assert (known.error_code, known.group_state, known.protocol_data) == (NONE, "Stable", "range")
        (member,) = known.members
        assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "tester", "/10.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (METADATA, b"mine")
        assert (unknown.error_code, unknown.group_id, unknown.group_state) == (NONE, "nobody", "Dead")
        if version >= 3:
            assert known.authorized_operations == all_operations(ResourceType.GROUP)
            without = await server.ask(
                ApiKey.DESCRIBE_GROUPS, version, message | {"include_authorized_operations": False}
            )
            assert without.groups[0].authorized_operations == NOT_REQUESTED
        if version >= 4:
            assert member.group_instance_id == "static"

    virtual(scenario)


def test_describe_groups_on_a_broker_that_is_not_the_coordinator() -> None:
    async def scenario(server: Server) -> None:
        message = {"groups": ["group"], "include_authorized_operations": False}
        (group,) = (await server.ask(ApiKey.DESCRIBE_GROUPS, 5, message)).groups
        assert (group.error_code, group.group_state) == (NotCoordinatorError.code, "")

    virtual(scenario, leads=False)


@versions(ApiKey.DELETE_GROUPS)
def test_deletions_in_each_version(version: int) -> None:
    async def scenario(server: Server) -> None:
        await server.stable()
        await server.commit(9, {EVENTS[0]: 5}, group_id="stored")
        message = {"groups_names": ["stored", "group", "nobody", "stored"]}
        answer = await server.ask(ApiKey.DELETE_GROUPS, version, message)
        codes = {result.group_id: int(result.error_code) for result in answer.results}
        assert codes == {"stored": NONE, "group": 68, "nobody": GroupIdNotFoundError.code}
        assert await server.groups.fetch("stored", None) == {}

    virtual(scenario)
