"""Members of classic groups that speak the protocol directly, so that thousands of them cost the client little.

The other clients of groups use it. A member is a connection and what it knows of its group. Several members may share a
connection, but only one at a time can join, because a broker handles the requests of a connection in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from comparison.waiting import wait_until
from comparison.wire import CLIENT_ID, Connection
from odradek.client.consumer.group_protocol import PROTOCOL_TYPE, Subscription, encode_assignment, encode_subscription
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, decode_response, encode_request
from odradek.protocol.wire import Reader

_FIND_VERSION: Final = 1
JOIN_VERSION: Final = 3
"""The newest version in which a member joins with its first request, without getting an id first (KIP-394)."""
SYNC_VERSION: Final = 2
HEARTBEAT_VERSION: Final = 2
REBALANCE_IN_PROGRESS: Final = 27
SESSION_MS: Final = 1_200_000
"""Longer than a scenario, so that members of one run do not expire while others are measured."""
REBALANCE_MS: Final = 60_000
_SECONDS: Final = 60.0


class GroupError(RuntimeError):
    """The coordinator answered with an error."""


@dataclass(slots=True)
class Member:
    """A member, its connection, and its id and generation after it has joined."""

    group: str
    connection: Connection
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    members: tuple[str, ...] = ()
    """Ids of all members, if this one is the leader."""

    def send(self, key: ApiKey, version: int, message: Message) -> None:
        """Send a request. `receive` returns its response."""
        self.connection.send(encode_request(key, version, 0, CLIENT_ID, message))

    def receive(self, key: ApiKey, version: int, expected: int = 0) -> Any:
        """Return the response. Raises `GroupError` if it has another error code than the expected one."""
        response = decode_response(key, version, self.connection.receive())
        if response.error_code != expected:
            raise GroupError(f"{key.name} of group {self.group}: error {response.error_code}, expected {expected}")
        return response

    def send_join(self, topics: Sequence[str]) -> None:
        """Send JoinGroup."""
        metadata = encode_subscription(Subscription(topics=tuple(topics)))
        message = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": self.member_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        self.send(ApiKey.JOIN_GROUP, JOIN_VERSION, message)

    def receive_join(self) -> None:
        """Wait until the member has joined."""
        response = self.receive(ApiKey.JOIN_GROUP, JOIN_VERSION)
        self.member_id, self.generation, self.leader = response.member_id, response.generation_id, response.leader
        self.members = tuple(member.member_id for member in response.members)

    def send_sync(self, assignments: Mapping[str, bytes]) -> None:
        """Send SyncGroup. The leader sends the assignments of all members."""
        is_leader = self.member_id == self.leader
        message = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "assignments": [
                {"member_id": member_id, "assignment": assignment} for member_id, assignment in assignments.items()
            ]
            if is_leader
            else [],
        }
        self.send(ApiKey.SYNC_GROUP, SYNC_VERSION, message)

    def receive_sync(self) -> None:
        """Wait for the assignment."""
        self.receive(ApiKey.SYNC_GROUP, SYNC_VERSION)

    def heartbeat_frame(self) -> bytes:
        """Return a Heartbeat request."""
        message = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return encode_request(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, 0, CLIENT_ID, message)


def heartbeat_code(frame: memoryview) -> int:
    """Return the error code of a Heartbeat response, after its correlation id and throttle time."""
    reader = Reader(frame)
    reader.int32()
    reader.int32()
    return reader.int16()


def equal_shares(members: Sequence[str], partitions: Sequence[Any]) -> dict[str, bytes]:
    """Return encoded assignments that give each member the same number of partitions, as far as possible."""
    count = len(members)
    return {member: encode_assignment(partitions[number::count]) for number, member in enumerate(members)}


def wait_for_coordinator(connection: Connection, group: str) -> None:
    """Wait until the broker coordinates a group. The first call creates the topic of the offsets."""
    wait_until(
        lambda: not connection.ask(ApiKey.FIND_COORDINATOR, _FIND_VERSION, {"key": group, "key_type": 0}).error_code,
        f"the coordinator of {group}",
        timeout_seconds=_SECONDS,
    )
