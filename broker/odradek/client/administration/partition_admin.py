"""Partitions and their replicas as admin clients manage them: deleted records, elections, reassignments, directories.

`Admin` inherits from it. Requests go to the leader, to the controller or to the broker of a replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from odradek.base.errors import (
    NONE,
    ElectionNotNeededError,
    NetworkError,
    NoReassignmentInProgressError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RequestTimedOutError,
    error_for,
)
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import TopicPartition
from odradek.client.administration.admin_parts import AdminPart, check_answer
from odradek.client.models import PartitionReassignment
from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch import DeleteRecordsResponse
from odradek.protocol.messages.log_dirs import AlterReplicaLogDirsResponse
from odradek.protocol.messages.replicas import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)


class ElectionType(IntEnum):
    """Which leader an election chooses (KIP-460)."""

    PREFERRED = 0
    """The first replica."""
    UNCLEAN = 1
    """Any live replica if none in sync is alive. Records may be lost."""


class PartitionAdmin(AdminPart):
    """Deletes records, elects leaders, and moves replicas."""

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition; -1 stands for the high watermark (KIP-107).

        Returns the first offset of each partition then. Raises `OffsetOutOfRangeError` for an offset above the high
        watermark, and `PolicyViolationError` for a topic that is compacted only; other partitions may be changed then.
        """
        found: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            left = [partition for partition in offsets if partition not in found]
            by_leader = await self._by_leader(left)
            await asyncio.gather(*(of(leader, partitions) for leader, partitions in by_leader.items()))

        async def of(leader: int, partitions: Sequence[TopicPartition]) -> None:
            response = await self._cluster.ask(
                leader,
                DeleteRecordsResponse,
                {
                    "topics": [
                        {
                            "name": topic,
                            "partitions": [
                                {"partition_index": number, "offset": offsets[TopicPartition(topic, number)]}
                                for number in numbers
                            ],
                        }
                        for topic, numbers in grouped_by_topic(partitions).items()
                    ],
                    "timeout_ms": self._cluster.settings.request_timeout_ms,
                },
            )
            failure: ProtocolError | None = None
            for topic in response.topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    if row.error_code == NONE:
                        found[partition] = row.low_watermark
                    else:
                        text = f"records of {partition} before offset {offsets[partition]} cannot be deleted"
                        failure = failure or error_for(row.error_code, text)
            if failure is not None:
                if isinstance(failure, NotLeaderOrFollowerError):
                    self._cluster.request_refresh()
                raise failure

        await self._retrying(attempt, "deleting records")
        return found

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, election: ElectionType = ElectionType.PREFERRED
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Elect the leaders of partitions, by default of all. Return the error of each; None means success.

        A partition whose leader is right already has `ElectionNotNeededError` if it was named, and is missing
        otherwise. Raises `ClusterAuthorizationFailedError`.
        """
        wanted = None if partitions is None else grouped_by_topic(partitions)
        topics = None
        if wanted is not None:
            topics = [{"topic": topic, "partitions": numbers} for topic, numbers in wanted.items()]
        message: dict[str, object] = {
            "election_type": int(election),
            "topic_partitions": topics,
            "timeout_ms": self._cluster.settings.request_timeout_ms,
        }

        async def attempt() -> dict[TopicPartition, ProtocolError | None]:
            response = await self._cluster.ask_controller(ElectLeadersResponse, message)
            check_answer(response.error_code, None, "leaders cannot be elected")
            found: dict[TopicPartition, ProtocolError | None] = {}
            for topic in response.replica_election_results:
                for row in topic.partition_result:
                    partition = TopicPartition(topic.topic, row.partition_id)
                    text = f"no leader was elected for {partition}: {row.error_message or 'refused'}"
                    error = error_for(row.error_code, text) if row.error_code else None
                    if wanted is not None or not isinstance(error, ElectionNotNeededError):
                        found[partition] = error
            return found

        return await self._retrying(attempt, "electing leaders")

    async def alter_partition_reassignments(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Move partitions to other replicas, the first of which is the preferred leader (KIP-455). None cancels a
        reassignment.

        Returns when the reassignments have begun; `list_partition_reassignments` shows those in progress. Raises
        `InvalidReplicaAssignmentError`, `NoReassignmentInProgressError` and `UnknownTopicOrPartitionError` for the
        first partition with an error; those of other partitions have begun.
        """
        left = dict(targets)
        answer_lost = False

        async def attempt() -> ProtocolError | None:
            nonlocal answer_lost
            try:
                response = await self._cluster.ask_controller(
                    AlterPartitionReassignmentsResponse, self._reassignments(left)
                )
            except (NetworkError, RequestTimedOutError):
                answer_lost = True
                raise
            check_answer(response.error_code, response.error_message, "partitions cannot be reassigned")
            failure: ProtocolError | None = None
            for topic in response.responses:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    # A cancellation whose response was lost has been made before.
                    is_done = answer_lost and row.error_code == NoReassignmentInProgressError.code
                    if row.error_code == NONE or is_done:
                        left.pop(partition, None)
                        continue
                    text = f"{partition} cannot be reassigned: {row.error_message or 'refused'}"
                    failure = failure or error_for(row.error_code, text)
            if failure is not None and failure.retriable:
                raise failure
            return failure

        failure = await self._retrying(attempt, "reassigning partitions") if left else None
        if failure is not None:
            raise failure

    def _reassignments(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Message:
        return {
            "timeout_ms": self._cluster.settings.request_timeout_ms,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": number, "replicas": targets[TopicPartition(topic, number)]}
                        for number in numbers
                    ],
                }
                for topic, numbers in grouped_by_topic(targets).items()
            ],
        }

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments in progress of these partitions, by default of all."""
        topics = None
        if partitions is not None:
            topics = [
                {"name": topic, "partition_indexes": numbers} for topic, numbers in grouped_by_topic(partitions).items()
            ]

        async def attempt() -> dict[TopicPartition, PartitionReassignment]:
            response = await self._cluster.ask_controller(
                ListPartitionReassignmentsResponse,
                {"timeout_ms": self._cluster.settings.request_timeout_ms, "topics": topics},
            )
            check_answer(response.error_code, response.error_message, "reassignments cannot be listed")
            return {
                TopicPartition(topic.name, row.partition_index): PartitionReassignment(
                    replicas=row.replicas, adding=row.adding_replicas, removing=row.removing_replicas
                )
                for topic in response.topics
                for row in topic.partitions
            }

        return await self._retrying(attempt, "listing reassignments")

    async def alter_replica_log_dirs(
        self, directories: Mapping[tuple[int, TopicPartition], str]
    ) -> dict[tuple[int, TopicPartition], ProtocolError | None]:
        """Move replicas to other log directories of their brokers (KIP-113). Keys are broker ids and partitions.

        Returns the error of each replica, such as `LogDirNotFoundError`; None means that the move has begun.
        `describe_log_dirs` shows its progress as a future replica.
        """
        brokers = sorted({broker for broker, _ in directories})
        answers = await asyncio.gather(
            *(
                self._move_on(broker, {tp: path for (of, tp), path in directories.items() if of == broker})
                for broker in brokers
            )
        )
        return {
            (broker, partition): error
            for broker, errors in zip(brokers, answers, strict=True)
            for partition, error in errors.items()
        }

    async def _move_on(
        self, broker: int, directories: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, ProtocolError | None]:
        by_path: dict[str, list[TopicPartition]] = {}
        for partition, path in directories.items():
            by_path.setdefault(path, []).append(partition)
        message = {
            "dirs": [
                {
                    "path": path,
                    "topics": [
                        {"name": topic, "partitions": numbers} for topic, numbers in grouped_by_topic(each).items()
                    ],
                }
                for path, each in by_path.items()
            ]
        }

        async def attempt() -> dict[TopicPartition, ProtocolError | None]:
            response = await self._cluster.ask(broker, AlterReplicaLogDirsResponse, message)
            found: dict[TopicPartition, ProtocolError | None] = {}
            for topic in response.results:
                for row in topic.partitions:
                    partition = TopicPartition(topic.topic_name, row.partition_index)
                    text = f"broker {broker} cannot move {partition} to {directories[partition]}"
                    found[partition] = error_for(row.error_code, text) if row.error_code else None
            return found

        return await self._retrying(attempt, "moving replicas between log directories")
