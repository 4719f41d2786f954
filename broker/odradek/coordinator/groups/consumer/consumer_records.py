"""The records of a consumer group in `__consumer_offsets`: their keys, the records between two states, and the state
after a series of records.

A group has one record for its epoch, one for its topics and one for the epoch of its target assignment. Each member has
one for its subscription, one for its target assignment and one for what it has now. Each regular expression has one.
`consumer_record_values` has the format of the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Final
from uuid import UUID

from odradek.coordinator.coordinator_ports import KeyValue
from odradek.coordinator.groups.consumer.consumer_record_values import (
    ConsumerRecordType,
    CurrentAssignment,
    decode_assignment_epoch,
    decode_current,
    decode_group_epoch,
    decode_member,
    decode_regex,
    decode_target,
    decode_topics,
    encode_assignment_epoch,
    encode_current,
    encode_group_epoch,
    encode_member,
    encode_regex,
    encode_target,
    encode_topics,
)
from odradek.coordinator.groups.consumer.consumer_values import (
    ConsumerGroupImage,
    ConsumerMember,
    PartitionSet,
    ResolvedRegex,
    TopicShape,
)
from odradek.protocol.wire import Reader, Writer


@dataclass(frozen=True, slots=True)
class ConsumerRecordKey:
    """Key of a record of a consumer group."""

    type: ConsumerRecordType
    group: str
    name: str = ""
    """A member id, or a regular expression; empty for a record of the whole group."""


CONSUMER_KEY_VERSIONS: Final = frozenset(ConsumerRecordType)

GROUP_RECORD_TYPES: Final = frozenset(
    {
        ConsumerRecordType.GROUP_METADATA,
        ConsumerRecordType.PARTITION_METADATA,
        ConsumerRecordType.TARGET_ASSIGNMENT_METADATA,
    }
)
"""Types of which a group has only one record."""

_UNKNOWN_TIMEOUT_MS: Final = -1
_metadata_of: Final = attrgetter(
    "instance_id",
    "rack_id",
    "client_id",
    "client_host",
    "topics",
    "regex",
    "rebalance_timeout_ms",
    "assignor",
    "classic",
)
_current_of: Final = attrgetter("epoch", "previous_epoch", "state", "assigned", "revoking")


def encode_consumer_key(key: ConsumerRecordKey) -> bytes:
    """Encode a key. Raises `ValueError` for a string of more than 32767 bytes."""
    writer = Writer()
    writer.int16(key.type)
    writer.string(key.group)
    if key.type not in GROUP_RECORD_TYPES:
        writer.string(key.name)
    return bytes(writer.data)


def decode_consumer_key(version: int, reader: Reader) -> ConsumerRecordKey:
    """Decode the rest of a key after its version, which is one of `CONSUMER_KEY_VERSIONS`.

    Raises `MalformedFrameError` if it is too short or too long.
    """
    record_type = ConsumerRecordType(version)
    group = reader.string()
    key = ConsumerRecordKey(record_type, group, "" if record_type in GROUP_RECORD_TYPES else reader.string())
    reader.expect_end()
    return key


def changes(group_id: str, before: ConsumerGroupImage, after: ConsumerGroupImage) -> list[KeyValue]:
    """Return the records that turn `before` into `after`; all of them if `before` is `NEW_GROUP`, and a tombstone for
    each record if `after` is.

    The order is one that Apache Kafka accepts when it replays them: a member is removed, or loses a partition, before
    another member gets the partition; a member has its subscription before anything else; the tombstones of the group
    are last. The records need to be in one batch, so that nobody sees a part of them.
    """
    return [
        (encode_consumer_key(ConsumerRecordKey(record_type, group_id, name)), value)
        for record_type, name, value in chain(
            _removed_members(before, after),
            _changed_members(before, after),
            _changed_regexes(before, after),
            _changed_group(before, after),
            _changed_targets(before, after),
            _changed_assignments(before, after),
            _group_tombstones(before, after),
        )
    ]


_Change = tuple[ConsumerRecordType, str, bytes | None]


def _removed_members(before: ConsumerGroupImage, after: ConsumerGroupImage) -> Iterator[_Change]:
    for member_id in dict.fromkeys(chain(before.members, before.target)):
        is_removed = member_id in before.members and member_id not in after.members
        if is_removed:
            yield ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT, member_id, None
        if member_id in before.target and member_id not in after.target:
            yield ConsumerRecordType.TARGET_ASSIGNMENT_MEMBER, member_id, None
        if is_removed:
            yield ConsumerRecordType.MEMBER_METADATA, member_id, None


def _changed_members(before: ConsumerGroupImage, after: ConsumerGroupImage) -> Iterator[_Change]:
    for member_id, member in after.members.items():
        old = before.members.get(member_id)
        if old is not member and (old is None or _metadata_of(old) != _metadata_of(member)):
            yield ConsumerRecordType.MEMBER_METADATA, member_id, encode_member(member)


def _changed_regexes(before: ConsumerGroupImage, after: ConsumerGroupImage) -> Iterator[_Change]:
    for regex in before.regexes:
        if regex not in after.regexes:
            yield ConsumerRecordType.REGULAR_EXPRESSION, regex, None
    for regex, resolved in after.regexes.items():
        if before.regexes.get(regex) != resolved:
            yield ConsumerRecordType.REGULAR_EXPRESSION, regex, encode_regex(resolved)


def _changed_group(before: ConsumerGroupImage, after: ConsumerGroupImage) -> Iterator[_Change]:
    if after.topics and before.topics != after.topics:
        yield ConsumerRecordType.PARTITION_METADATA, "", encode_topics(after.topics)
    if after.epoch and before.epoch != after.epoch:
        yield ConsumerRecordType.GROUP_METADATA, "", encode_group_epoch(after.epoch)


def _changed_targets(before: ConsumerGroupImage, after: ConsumerGroupImage) -> Iterator[_Change]:
    for member_id, target in after.target.items():
        if before.target.get(member_id) != target:
            yield ConsumerRecordType.TARGET_ASSIGNMENT_MEMBER, member_id, encode_target(target)
    if after.assignment_epoch and before.assignment_epoch != after.assignment_epoch:
        epoch = encode_assignment_epoch(after.assignment_epoch)
        yield ConsumerRecordType.TARGET_ASSIGNMENT_METADATA, "", epoch


def _changed_assignments(before: ConsumerGroupImage, after: ConsumerGroupImage) -> Iterator[_Change]:
    """Yield what the members have now.

    Kafka refuses to replay a record that gives a member a partition which another member still has. So members that
    get such partitions come last, and if they also lose some, an extra record takes these away before.
    """
    changed = [
        (before.members.get(member_id), member)
        for member_id, member in after.members.items()
        if before.members.get(member_id) is not member
    ]
    changed = [(old, new) for old, new in changed if old is None or _current_of(old) != _current_of(new)]
    owned = {new.member_id: (_owned(old), _owned(new)) for old, new in changed}
    lost = {partition for had, has in owned.values() for partition in had - has}
    late: list[ConsumerMember] = []
    for old, new in changed:
        had, has = owned[new.member_id]
        first: ConsumerMember | None = new
        if not lost.isdisjoint(has - had):
            late.append(new)
            first = _without(old, had - has) if old is not None and had - has else None
        if first is not None:
            yield ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT, new.member_id, encode_current(first)
    for new in late:
        yield ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT, new.member_id, encode_current(new)


def _owned(member: ConsumerMember | None) -> set[tuple[UUID, int]]:
    if member is None:
        return set()
    topics = chain(member.assigned.items(), member.revoking.items())
    return {(topic_id, partition) for topic_id, partitions in topics for partition in partitions}


def _without(member: ConsumerMember, lost: set[tuple[UUID, int]]) -> ConsumerMember:
    def rest(partitions: PartitionSet) -> PartitionSet:
        kept = {
            topic_id: frozenset(number for number in numbers if (topic_id, number) not in lost)
            for topic_id, numbers in partitions.items()
        }
        return {topic_id: numbers for topic_id, numbers in kept.items() if numbers}

    return replace(member, assigned=rest(member.assigned), revoking=rest(member.revoking))


def _group_tombstones(before: ConsumerGroupImage, after: ConsumerGroupImage) -> Iterator[_Change]:
    if before.topics and not after.topics:
        yield ConsumerRecordType.PARTITION_METADATA, "", None
    if before.assignment_epoch and not after.assignment_epoch:
        yield ConsumerRecordType.TARGET_ASSIGNMENT_METADATA, "", None
    if before.epoch and not after.epoch:
        yield ConsumerRecordType.GROUP_METADATA, "", None


class StateBuilder:
    """Builds the state of one group from its records.

    As compaction may have removed some, records are independent of each other: a member exists if it has a subscription
    or an assignment, as in Kafka, so that the coordinator also removes the rest of an incomplete member.
    """

    def __init__(self) -> None:
        """Without records."""
        self._epoch = 0
        self._assignment_epoch = 0
        self._members: dict[str, ConsumerMember] = {}
        self._current: dict[str, CurrentAssignment] = {}
        self._target: dict[str, PartitionSet] = {}
        self._topics: Mapping[str, TopicShape] = {}
        self._regexes: dict[str, ResolvedRegex] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the group has no records, or only tombstones."""
        parts = (self._members, self._current, self._target, self._topics, self._regexes)
        return not (self._epoch or self._assignment_epoch or any(parts))

    def apply(self, key: ConsumerRecordKey, value: bytes | None) -> None:
        """Apply a record. Raises `MalformedFrameError` and changes nothing if the value is invalid."""
        name = key.name
        match key.type:
            case ConsumerRecordType.GROUP_METADATA:
                self._epoch = 0 if value is None else decode_group_epoch(value)
            case ConsumerRecordType.TARGET_ASSIGNMENT_METADATA:
                self._assignment_epoch = 0 if value is None else decode_assignment_epoch(value)
            case ConsumerRecordType.PARTITION_METADATA:
                self._topics = {} if value is None else decode_topics(value)
            case _ if value is None:
                self._remove(key.type, name)
            case ConsumerRecordType.MEMBER_METADATA:
                self._members[name] = decode_member(name, value)
            case ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT:
                self._current[name] = decode_current(value)
            case ConsumerRecordType.TARGET_ASSIGNMENT_MEMBER:
                self._target[name] = decode_target(value)
            case ConsumerRecordType.REGULAR_EXPRESSION:
                self._regexes[name] = decode_regex(value)

    def _remove(self, record_type: ConsumerRecordType, name: str) -> None:
        match record_type:
            case ConsumerRecordType.MEMBER_METADATA:
                self._members.pop(name, None)
            case ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT:
                self._current.pop(name, None)
            case ConsumerRecordType.TARGET_ASSIGNMENT_MEMBER:
                self._target.pop(name, None)
            case ConsumerRecordType.REGULAR_EXPRESSION:
                self._regexes.pop(name, None)

    def build(self) -> ConsumerGroupImage:
        """Return the state after the records so far."""
        members = dict(self._members)
        for member_id, current in self._current.items():
            member = members.get(member_id)
            if member is None:
                member = ConsumerMember(member_id=member_id, rebalance_timeout_ms=_UNKNOWN_TIMEOUT_MS)
            members[member_id] = replace(member, **current._asdict())
        return ConsumerGroupImage(
            epoch=self._epoch,
            assignment_epoch=self._assignment_epoch,
            members=members,
            target=dict(self._target),
            topics=self._topics,
            regexes=dict(self._regexes),
        )
