"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

The handlers convert between requests of all versions and `coordinator/groups/group_coordinator`, which makes the
decisions. The handlers raise the error of a whole request, unless its response has an error code per partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.base.errors import (
    NONE,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidTransactionStateError,
    ProtocolError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import NO_OFFSET, TopicPartition
from odradek.cluster import MetadataCache
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.group_requests import (
    CommitRequest,
    FetchedOffset,
    MemberCheck,
    OffsetToCommit,
    TransactionalCommitRequest,
)
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.groups.zookeeper_offsets import ZooKeeperOffsets

SEVERAL_GROUPS_SINCE: Final = 8
"""First OffsetFetch version with several groups (KIP-709)."""

MEMBER_EPOCHS_SINCE: Final = 9
"""First versions of OffsetCommit and OffsetFetch that members of consumer groups use (KIP-848)."""

COORDINATED_OFFSETS_SINCE: Final = 1
"""First versions of OffsetCommit and OffsetFetch that use `__consumer_offsets`. Version 0 uses ZooKeeper."""

BROKERS_RETENTION: Final = -1
"""Retention time in OffsetCommit versions 2 to 4 that means that there is none."""

BROKERS_TIME: Final = -1
"""Commit time in OffsetCommit version 1 that means that there is none."""

LOADING_SINCE: Final = 2
"""First TxnOffsetCommit version whose clients expect COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""

ABORTABLE_SINCE: Final = 4
"""First TxnOffsetCommit version that has TRANSACTION_ABORTABLE (KIP-890)."""

ADDITIONS_SINCE: Final = 5
"""First TxnOffsetCommit version that adds the partition of `__consumer_offsets` to the transaction (KIP-890)."""


class OffsetCoordinationHandlers:
    """Handlers of committed offsets, which use the group coordinator and the metadata image."""

    def __init__(self, *, groups: GroupCoordinator, view: MetadataCache, zookeeper_offsets: ZooKeeperOffsets) -> None:
        """`zookeeper_offsets` handles version 0 of OffsetCommit and OffsetFetch."""
        self._groups = groups
        self._view = view
        self._zookeeper_offsets = zookeeper_offsets

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(OffsetCommitRequest, self.offset_commit),
                route(TxnOffsetCommitRequest, self.txn_offset_commit),
                route(OffsetFetchRequest, self.offset_fetch),
                route(OffsetDeleteRequest, self.offset_delete),
            ]
        )

    async def offset_commit(self, context: RequestContext, request: OffsetCommitRequest) -> Message:
        """Handle OffsetCommit: store the offsets of partitions that exist."""
        codes: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, OffsetToCommit] = {}
        retention_ms = request.retention_time_ms
        image = self._view.image
        for topic in request.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                commit_ms = partition.commit_timestamp
                if image.partition(topic_partition) is None:
                    codes[topic_partition] = UnknownTopicOrPartitionError.code
                else:
                    offsets[topic_partition] = OffsetToCommit(
                        offset=partition.committed_offset,
                        metadata=partition.committed_metadata or "",
                        leader_epoch=partition.committed_leader_epoch,
                        retention_ms=None if retention_ms == BROKERS_RETENTION else retention_ms,
                        commit_timestamp_ms=None if commit_ms == BROKERS_TIME else commit_ms,
                    )
        if offsets and context.api_version < COORDINATED_OFFSETS_SINCE:
            numbers = {partition: (given.offset, given.metadata) for partition, given in offsets.items()}
            codes |= await self._zookeeper_offsets.commit(request.group_id, numbers)
        elif offsets:
            codes |= await self._commit(request, offsets, context.api_version >= MEMBER_EPOCHS_SINCE)
        return {"throttle_time_ms": 0, "topics": _coded_topics(request.topics, codes)}

    async def _commit(
        self, request: OffsetCommitRequest, offsets: Mapping[TopicPartition, OffsetToCommit], knows_epochs: bool
    ) -> Mapping[TopicPartition, int]:
        check = MemberCheck(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
        )
        try:
            return await self._groups.commit(
                CommitRequest(member=check, offsets=offsets, supports_member_epochs=knows_epochs)
            )
        except ProtocolError as error:
            return dict.fromkeys(offsets, error.code)

    async def txn_offset_commit(self, context: RequestContext, request: TxnOffsetCommitRequest) -> Message:
        """Handle TxnOffsetCommit: store offsets that become visible when the transaction commits (KIP-98, KIP-447)."""
        codes: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, OffsetToCommit] = {}
        image = self._view.image
        for topic in request.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                if image.partition(topic_partition) is None:
                    codes[topic_partition] = UnknownTopicOrPartitionError.code
                else:
                    offsets[topic_partition] = OffsetToCommit(
                        offset=partition.committed_offset,
                        metadata=partition.committed_metadata or "",
                        leader_epoch=partition.committed_leader_epoch,
                    )
        if offsets:
            adds_partition = context.api_version >= ADDITIONS_SINCE
            found = await self._commit_transactional(request, offsets, adds_partition=adds_partition)
            codes |= {key: _known_code(code, context.api_version) for key, code in found.items()}
        return {"throttle_time_ms": 0, "topics": _coded_topics(request.topics, codes)}

    async def _commit_transactional(
        self, request: TxnOffsetCommitRequest, offsets: Mapping[TopicPartition, OffsetToCommit], *, adds_partition: bool
    ) -> Mapping[TopicPartition, int]:
        commit = TransactionalCommitRequest(
            member=MemberCheck(
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                generation=request.generation_id,
            ),
            writer=TransactionalWriter(
                request.transactional_id, request.producer_id, request.producer_epoch, adds=adds_partition
            ),
            offsets=offsets,
        )
        try:
            return await self._groups.commit_transactional(commit)
        except ProtocolError as error:
            return dict.fromkeys(offsets, error.code)

    async def offset_fetch(self, context: RequestContext, request: OffsetFetchRequest) -> Message:
        """Handle OffsetFetch: for one group up to version 7, for several from version 8 on (KIP-709)."""
        if context.api_version < COORDINATED_OFFSETS_SINCE:
            return await self._fetch_from_zookeeper(request)
        require_stable = request.require_stable
        if context.api_version >= SEVERAL_GROUPS_SINCE:
            groups = [await self._fetch_group(group, require_stable) for group in request.groups]
            return {"throttle_time_ms": 0, "groups": groups}
        if request.topics is None:
            fetched = await self._groups.fetch(request.group_id, None, require_stable=require_stable)
        else:
            fetched = await self._groups.fetch(request.group_id, _wanted(request.topics), require_stable=require_stable)
        return {"throttle_time_ms": 0, "topics": _fetched_topics(fetched), "error_code": NONE}

    async def _fetch_from_zookeeper(self, request: OffsetFetchRequest) -> Message:
        wanted = _wanted(request.topics or ())
        image = self._view.image
        known = [partition for partition in wanted if image.partition(partition) is not None]
        kept = await self._zookeeper_offsets.fetch(request.group_id, known)
        unknown = FetchedOffset(offset=NO_OFFSET, error_code=UnknownTopicOrPartitionError.code)
        fetched = dict.fromkeys(wanted, unknown)
        fetched |= {key: FetchedOffset(offset=one.offset, error_code=one.error_code) for key, one in kept.items()}
        return {"topics": _fetched_topics(fetched)}

    async def _fetch_group(self, group: OffsetFetchRequestGroup, require_stable: bool) -> Message:
        wanted = None if group.topics is None else _wanted(group.topics)
        member = None
        if group.member_id is not None or group.member_epoch >= 0:
            member = MemberCheck(
                group_id=group.group_id, member_id=group.member_id or "", generation=group.member_epoch
            )
        try:
            fetched = await self._groups.fetch(group.group_id, wanted, require_stable=require_stable, member=member)
        except ProtocolError as error:
            return {"group_id": group.group_id, "topics": [], "error_code": error.code}
        return {"group_id": group.group_id, "topics": _fetched_topics(fetched), "error_code": NONE}

    async def offset_delete(self, context: RequestContext, request: OffsetDeleteRequest) -> Message:
        """Handle OffsetDelete: delete offsets of partitions that exist, unless a member subscribes to the topic
        (KIP-496)."""
        wanted = [
            TopicPartition(topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ]
        image = self._view.image
        existing = [partition for partition in wanted if image.partition(partition) is not None]
        codes = dict.fromkeys(wanted, UnknownTopicOrPartitionError.code)
        codes |= await self._groups.delete_offsets(request.group_id, existing)
        return {"error_code": NONE, "throttle_time_ms": 0, "topics": _coded_topics(request.topics, codes)}


def _known_code(code: int, version: int) -> int:
    """Return a code of TxnOffsetCommit that clients of the version know."""
    if code == CoordinatorLoadInProgressError.code and version < LOADING_SINCE:
        return CoordinatorNotAvailableError.code
    if code == TransactionAbortableError.code and version < ABORTABLE_SINCE:
        return InvalidTransactionStateError.code
    return code


def _coded_topics(
    topics: Iterable[OffsetCommitRequestTopic | OffsetDeleteRequestTopic | TxnOffsetCommitRequestTopic],
    codes: Mapping[TopicPartition, int],
) -> list[Message]:
    """Return the topics and partitions of a request with the error code of each partition."""
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": partition.partition_index,
                    "error_code": codes[TopicPartition(topic.name, partition.partition_index)],
                }
                for partition in topic.partitions
            ],
        }
        for topic in topics
    ]


def _wanted(topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes]


def _fetched_topics(fetched: Mapping[TopicPartition, FetchedOffset]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for (topic, number), offset in fetched.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": number,
                "committed_offset": offset.offset,
                "committed_leader_epoch": offset.leader_epoch,
                "metadata": offset.metadata,
                "error_code": offset.error_code,
            }
        )
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
