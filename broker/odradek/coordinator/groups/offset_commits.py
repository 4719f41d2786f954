"""Offset commits, fetches and expiration for the groups of one `__consumer_offsets` partition.

`group_shard` calls it with a group and a request. The group decides whether a commit is allowed. Records are appended
through `RecordLog`, and an offset becomes visible when its record is committed. Expiration follows KIP-211: the group
decides when `offsets.retention.minutes` begin, and which offsets are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from odradek.base.errors import (
    NONE,
    CoordinatorLoadInProgressError,
    GroupSubscribedToTopicError,
    MessageTooLargeError,
    NetworkError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    PeerError,
    ProtocolError,
    RecordListTooLargeError,
    UnstableOffsetCommitError,
)
from odradek.base.ports import Clock
from odradek.base.types import NO_TIMESTAMP, Offset, TopicPartition
from odradek.coordinator.append_errors import COMMON_ERRORS, ErrorTable, translated
from odradek.coordinator.coordinator_ports import KeyValue, RecordLog, Respond
from odradek.coordinator.groups.group_events import GroupEvents
from odradek.coordinator.groups.group_kinds import CONSUMER_PROTOCOL_TYPE, AnyGroup
from odradek.coordinator.groups.group_offsets import Committed
from odradek.coordinator.groups.group_records import (
    EXPIRING_OFFSET_VALUE_VERSION,
    OffsetKey,
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.groups.group_requests import (
    CommitRequest,
    FetchedOffset,
    GroupSettings,
    OffsetToCommit,
)

CommitResult = Mapping[TopicPartition, int]
"""Error code of each partition."""


class InvalidCommitOffsetSizeError(PeerError):
    """The records of an offset commit exceed the maximum batch size."""

    code: ClassVar[int] = 28


_APPEND_ERRORS: Final[ErrorTable] = {
    # Clients try again without looking up the coordinator, which is not the broker that did not respond.
    NetworkError: CoordinatorLoadInProgressError,
    **COMMON_ERRORS,
    MessageTooLargeError: InvalidCommitOffsetSizeError,
    RecordListTooLargeError: InvalidCommitOffsetSizeError,
}
"""Errors for clients by error of a failed append. Other errors are not changed."""


def client_error(error: ProtocolError) -> ProtocolError:
    """Return an error that clients of the group APIs know for the error of a failed append."""
    return translated(error, _APPEND_ERRORS)


class OffsetCommits:
    """Handles commits, fetches and deletions of offsets."""

    def __init__(self, *, settings: GroupSettings, clock: Clock, log: RecordLog, events: GroupEvents) -> None:
        """`events` counts the commits."""
        self._settings = settings
        self._clock = clock
        self._log = log
        self._events = events

    # OffsetCommit

    def commit(self, group: AnyGroup, request: CommitRequest, respond: Respond[CommitResult]) -> None:
        """Store offsets. When they are committed, respond with an error code per partition. Raises an error if the
        commit is not allowed."""
        group.check_commit(request)
        result, values = sort_out(request.offsets, self._settings, self._clock.wall_ms())
        if not values:
            respond(result)
            return
        group.offsets.begin(values)

        def appended(outcome: Offset | ProtocolError) -> None:
            group.offsets.finish(values)
            if isinstance(outcome, ProtocolError):
                code = client_error(outcome).code
                respond({key: known or code for key, known in result.items()})
                return
            for topic_partition, value in values.items():
                group.offsets.put(topic_partition, Committed(value, outcome))
            self._events.commits += len(values)
            respond(result)

        self._log.append(commit_records(group.group_id, values, self._settings), appended)

    # OffsetFetch

    def fetch(
        self, group: AnyGroup | None, wanted: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the committed offsets of the requested partitions, or of all. An unknown group has none."""
        if group is None or group.is_dead:
            return {topic_partition: FetchedOffset() for topic_partition in wanted or ()}
        offsets = group.offsets
        fetched = {}
        for topic_partition in offsets.committed() if wanted is None else wanted:
            value = offsets.get(topic_partition)
            if require_stable and offsets.is_unstable(topic_partition):
                fetched[topic_partition] = FetchedOffset(error_code=UnstableOffsetCommitError.code)
            elif value is None:
                fetched[topic_partition] = FetchedOffset()
            else:
                fetched[topic_partition] = FetchedOffset(
                    offset=value.offset, metadata=value.metadata, leader_epoch=value.leader_epoch
                )
        return fetched

    # OffsetDelete

    def deletable(self, group: AnyGroup, wanted: Iterable[TopicPartition]) -> CommitResult:
        """Return an error code for each partition, which is NONE if its offset can be deleted (KIP-496).

        Offsets of topics to which members of a consumer group subscribe are kept. If the subscriptions are unknown, all
        offsets are kept. Raises `NonEmptyGroupError` for members of another protocol type.
        """
        if group.is_empty:
            return dict.fromkeys(wanted, NONE)
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroupError(
                f"Group {group.group_id!r} has members of protocol type {group.protocol_type!r}: stop them first."
            )
        topics = group.subscribed_topics
        return {
            topic_partition: GroupSubscribedToTopicError.code
            if topics is None or topic_partition.topic in topics
            else NONE
            for topic_partition in wanted
        }

    # Expiry

    def expired(self, group: AnyGroup) -> list[TopicPartition]:
        """Return the partitions whose committed offsets have expired."""
        rule = group.expiry()
        if rule is None:
            return []
        since_ms = rule.since_ms
        return group.offsets.expired(
            self._clock.wall_ms(),
            self._settings.offsets_retention_ms,
            base_ms=_commit_time if since_ms is None else lambda _: since_ms,
            keep_topics=rule.keep_topics,
        )


def tombstones(group_id: str, topic_partitions: Sequence[TopicPartition]) -> list[KeyValue]:
    """Return the records that remove committed offsets."""
    return [(encode_offset_key(OffsetKey(group_id, *topic_partition)), None) for topic_partition in topic_partitions]


def sort_out(
    offsets: Mapping[TopicPartition, OffsetToCommit], settings: GroupSettings, now_ms: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, OffsetValue]]:
    """Return an error code for each partition of a commit, and the values of those whose metadata is not too long."""
    result, values = dict.fromkeys(offsets, NONE), {}
    for topic_partition, offset in offsets.items():
        if _java_length(offset.metadata) > settings.offset_metadata_max:
            result[topic_partition] = OffsetMetadataTooLargeError.code
        else:
            values[topic_partition] = _value(offset, now_ms)
    return result, values


def commit_records(
    group_id: str, values: Mapping[TopicPartition, OffsetValue], settings: GroupSettings
) -> list[KeyValue]:
    """Return the records that store offsets."""
    records: list[KeyValue] = []
    for topic_partition, value in values.items():
        has_expiry = value.expire_timestamp_ms != NO_TIMESTAMP
        version = EXPIRING_OFFSET_VALUE_VERSION if has_expiry else settings.offset_value_version
        key = encode_offset_key(OffsetKey(group_id, *topic_partition))
        records.append((key, encode_offset_value(value, version)))
    return records


def _value(offset: OffsetToCommit, now_ms: int) -> OffsetValue:
    return OffsetValue(
        offset=offset.offset,
        metadata=offset.metadata,
        commit_timestamp_ms=now_ms if offset.commit_timestamp_ms is None else offset.commit_timestamp_ms,
        leader_epoch=offset.leader_epoch,
        expire_timestamp_ms=now_ms + offset.retention_ms if offset.retention_ms is not None else NO_TIMESTAMP,
    )


def _commit_time(value: OffsetValue) -> int:
    return value.commit_timestamp_ms


def _java_length(text: str) -> int:
    """Return the length in UTF-16 code units. Kafka's limit counts these, although its name says bytes."""
    return len(text) + sum(character > "\uffff" for character in text)
