"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455): start, cancel and list reassignments.

The controller in this process carries them out. A reassignment continues after the response: clients list the
reassignments to find out when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from odradek.base.errors import NONE, ProtocolError
from odradek.base.types import TopicPartition
from odradek.controller.reassignment.reassigner import Targets
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.replicas import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.zk.layout import ReplicaAssignment


class ReassignmentPort(Protocol):
    """The port to the controller in this process. It raises `NotControllerError` if another broker is the
    controller."""

    async def alter_reassignments(self, targets: Targets) -> dict[TopicPartition, ProtocolError | None]:
        """Start or replace reassignments, or cancel those whose value is None. Returns the error of each partition."""
        ...

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the reassignments in progress of these partitions, or of all for None."""
        ...


class ReassignmentHandlers:
    """Handlers for reassignments."""

    def __init__(self, *, controller: ReassignmentPort) -> None:
        """`controller` handles the requests if it is the active one."""
        self._controller = controller

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(AlterPartitionReassignmentsRequest, self.alter),
                route(ListPartitionReassignmentsRequest, self.list),
            ]
        )

    async def alter(self, context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Message:
        """Start or replace reassignments. If a partition has no replicas in the request, its reassignment is
        cancelled."""
        targets = {
            TopicPartition(topic.name, part.partition_index): (None if part.replicas is None else part.replicas)
            for topic in request.topics
            for part in topic.partitions
        }
        topics: dict[str, list[dict[str, object]]] = {}
        for partition, error in (await self._controller.alter_reassignments(targets)).items():
            topics.setdefault(partition.topic, []).append(
                {
                    "partition_index": partition.partition,
                    "error_code": NONE if error is None else error.code,
                    "error_message": None if error is None else str(error),
                }
            )
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "error_message": None,
            "responses": [{"name": topic, "partitions": parts} for topic, parts in topics.items()],
        }

    async def list(self, context: RequestContext, request: ListPartitionReassignmentsRequest) -> Message:
        """Return the reassignments in progress of the requested partitions, or of all."""
        wanted = None
        if request.topics is not None:
            wanted = [
                TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes
            ]
        topics: dict[str, list[dict[str, object]]] = {}
        for partition, assignment in (await self._controller.list_reassignments(wanted)).items():
            topics.setdefault(partition.topic, []).append(
                {
                    "partition_index": partition.partition,
                    "replicas": assignment.replicas,
                    "adding_replicas": assignment.adding,
                    "removing_replicas": assignment.removing,
                }
            )
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "error_message": None,
            "topics": [{"name": topic, "partitions": parts} for topic, parts in topics.items()],
        }
