"""The coordinator of a group under the protocol of KIP-848, for tests of clients: it answers what the test prescribes.

Its methods are the answers of a fake cluster: functions from a request to the response message.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from odradek.base.errors import ProtocolError
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek_testkit.loop import VirtualClock

INTERVAL_MS: Final = 3_000
"""The heartbeat interval that it prescribes."""


class AssigningCoordinator:
    """The coordinator of a group with one member. Epoch and assignment are those that the test sets."""

    def __init__(self, cluster: Any) -> None:
        """`cluster` is a fake cluster, which gets the answers."""
        self.cluster = cluster
        self.epoch = 0
        self.target: list[tuple[str, int]] = [("t", 0), ("t", 1)]
        self.pending = True
        """Whether the next response has the assignment."""
        self.errors: list[type[ProtocolError] | None] = []
        """The errors of the next heartbeats, None for success; also those of the next commits and reads below."""
        self.commit_errors: list[type[ProtocolError] | None] = []
        self.fetch_errors: list[type[ProtocolError] | None] = []
        self.requests: list[Any] = []
        """All heartbeats, with their times below."""
        self.times_ms: list[float] = []
        self.committers: list[tuple[str, int, list[int]]] = []
        """Member id, member epoch and partitions of each commit."""
        self.readers: list[tuple[str | None, int]] = []
        """Member id and member epoch of each read of offsets."""
        self.chosen_id: str | None = None
        """A member id that replaces that of the member."""
        self.unknown_ids: dict[str, UUID] = {}
        """Ids of topics that the cluster does not know yet."""
        for name in ("consumer_group_heartbeat", "offset_commit", "offset_fetch"):
            cluster.answers[ApiKey[name.upper()]] = getattr(self, name)

    def give(self, *partitions: int, topic: str = "t") -> None:
        """Set the target, which the next heartbeat learns."""
        self.target = [(topic, number) for number in partitions]
        self.epoch += 1
        self.pending = True

    def consumer_group_heartbeat(self, request: Any) -> Message:
        """Answer a heartbeat."""
        self.requests.append(request)
        self.times_ms.append(VirtualClock().monotonic_ms())
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            return {"error_code": error.code, "error_message": "no", "member_epoch": 0, "heartbeat_interval_ms": 0}
        if request.member_epoch == 0:
            self.epoch += 1
        answer: dict[str, object] = {
            "error_code": 0,
            "member_id": self.chosen_id or request.member_id,
            "member_epoch": self.epoch if request.member_epoch >= 0 else request.member_epoch,
            "heartbeat_interval_ms": INTERVAL_MS,
        }
        if request.member_epoch >= 0 and (self.pending or request.topic_partitions is not None):
            self.pending = False
            answer["assignment"] = {"topic_partitions": self._assignment()}
        return answer

    def _assignment(self) -> list[dict[str, object]]:
        ids = self.cluster.ids() | self.unknown_ids
        return [{"topic_id": ids[topic], "partitions": [number]} for topic, number in self.target]

    def epochs(self) -> list[int]:
        """Return the member epoch of each heartbeat."""
        return [request.member_epoch for request in self.requests]

    def owned(self) -> list[list[int] | None]:
        """Return the partition numbers in each heartbeat; None if the field is missing."""
        return [
            None if each.topic_partitions is None else [n for topic in each.topic_partitions for n in topic.partitions]
            for each in self.requests
        ]

    def offset_commit(self, request: Any) -> Message:
        """Answer a commit."""
        error = self.commit_errors.pop(0) if self.commit_errors else None
        numbers = [item.partition_index for topic in request.topics for item in topic.partitions]
        self.committers.append((request.member_id, request.generation_id_or_member_epoch, numbers))
        rows = [{"partition_index": number, "error_code": error.code if error else 0} for number in numbers]
        return {"topics": [{"name": "t", "partitions": rows}]}

    def offset_fetch(self, request: Any) -> Message:
        """Answer a read of offsets: nothing is committed."""
        group = request.groups[0]
        self.readers.append((group.member_id, group.member_epoch))
        error = self.fetch_errors.pop(0) if self.fetch_errors else None
        if error is not None:
            return {"groups": [{"group_id": group.group_id, "topics": [], "error_code": error.code}]}
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": number, "committed_offset": -1, "metadata": "", "error_code": 0}
                    for number in topic.partition_indexes
                ],
            }
            for topic in group.topics
        ]
        return {"groups": [{"group_id": group.group_id, "topics": topics, "error_code": 0}]}
