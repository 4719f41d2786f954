"""Converts consumer groups to tables and to plain values for JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek.base.types import TopicPartition
from odradek.cli.tables import Column, Table
from odradek.client.admin_kinds import ConsumerGroupState
from odradek.client.models import GroupDescription, GroupLag, GroupListing, MemberDescription

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Views(NamedTuple):
    """What `describe` shows of each group."""

    offsets: bool = True
    members: bool = True
    state: bool = True


class Position(NamedTuple):
    """The lag of a group in one partition, and the member that reads it."""

    partition: TopicPartition
    lag: GroupLag
    member: MemberDescription | None


class ShownGroup(NamedTuple):
    """A group and its positions, which are None if they were not requested."""

    group: GroupDescription
    positions: tuple[Position, ...] | None


def positions(group: GroupDescription, lags: Mapping[TopicPartition, GroupLag]) -> tuple[Position, ...]:
    """Return the positions in all these partitions, in order."""
    readers = {partition: member for member in group.members for partition in member.assignment}
    return tuple(Position(partition, lags[partition], readers.get(partition)) for partition in sorted(lags))


def group_list(groups: Sequence[GroupListing]) -> Table:
    """Return a table with a row for each group."""
    rows = tuple((group.group_id, group.state, group.group_type or "-", group.protocol_type or "-") for group in groups)
    columns = (Column("GROUP"), Column("STATE"), Column("TYPE"), Column("PROTOCOL"))
    return Table("", columns, rows, empty="There are no such groups.")


def listed_value(group: GroupListing) -> dict[str, object]:
    """Return a group in a list for JSON. What the broker is too old to return is null."""
    return {
        "group": group.group_id,
        "state": None if group.state == ConsumerGroupState.UNKNOWN else group.state,
        "type": group.group_type or None,
        "protocol_type": group.protocol_type,
    }


def tables(groups: Sequence[ShownGroup], views: Views) -> list[Table]:
    """Return the tables of groups: with only the states, a row for each group; else one or two for each group."""
    if not groups or not (views.offsets or views.members):
        return [_states(groups)]
    found = []
    for described in groups:
        title = _title(described)
        if described.positions is not None:
            found.append(_offsets(title, described.positions))
            title = ""
        if views.members and (described.group.members or not views.offsets):
            found.append(_members(title, described.group))
    return found


def _title(described: ShownGroup) -> str:
    group = described.group
    title = [f"Group {group.group_id}", group.state, counted(len(group.members), "member")]
    if group.protocol:
        title.append(f"assignor {group.protocol}")
    title.append(f"coordinator {group.coordinator}")
    if described.positions is not None:
        title.append(f"lag {counted(_total(described.positions), 'record')}")
        ages = [place.lag.time_ms for place in described.positions if place.lag.time_ms is not None]
        if any(ages):
            title.append(f"{age(max(ages))} behind")
    return ", ".join(title)


def _total(found: Sequence[Position]) -> int:
    return sum(place.lag.records or 0 for place in found)


def _states(groups: Sequence[ShownGroup]) -> Table:
    rows = tuple(
        (group.group_id, group.state, str(len(group.members)), group.protocol or "-", str(group.coordinator))
        for group, _ in groups
    )
    columns = (
        Column("GROUP"),
        Column("STATE"),
        Column("MEMBERS", True),
        Column("ASSIGNOR"),
        Column("COORDINATOR", True),
    )
    return Table("", columns, rows, empty="There are no groups.")


def _offsets(title: str, found: Sequence[Position]) -> Table:
    columns = (
        Column("TOPIC"),
        Column("PARTITION", True),
        Column("COMMITTED", True),
        Column("END", True),
        Column("LAG", True),
        Column("BEHIND", True),
        Column("CLIENT"),
        Column("HOST"),
    )
    rows = tuple(
        (
            place.partition.topic,
            str(place.partition.partition),
            _or_dash(place.lag.committed.offset if place.lag.committed is not None else None),
            _or_dash(place.lag.end_offset),
            _or_dash(place.lag.records),
            "-" if place.lag.time_ms is None else age(place.lag.time_ms),
            place.member.client_id if place.member is not None else "-",
            place.member.client_host if place.member is not None else "-",
        )
        for place in found
    )
    return Table(title, columns, rows, empty="The group has no assigned partitions and no committed offsets.")


def _members(title: str, group: GroupDescription) -> Table:
    columns = (Column("MEMBER"), Column("INSTANCE"), Column("CLIENT"), Column("HOST"), Column("PARTITIONS"))
    rows = tuple(
        (
            member.member_id,
            member.group_instance_id or "-",
            member.client_id or "-",
            member.client_host or "-",
            partition_list(member.assignment) or "-",
        )
        for member in group.members
    )
    return Table(title, columns, rows, empty="The group has no members.")


def partition_list(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions by topic, in order: `orders:0,2 stock:1`."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())


def age(time_ms: int) -> str:
    """Return a duration with its two largest units, such as `2 d 5 h`; below a minute, in seconds and tenths."""
    if time_ms < 60_000:
        return f"{time_ms // 100 / 10:g} s"
    left = time_ms // 1000
    found: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or found:
            found.append(f"{count} {unit}")
    return " ".join(found[:2])


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 member`, `2 members`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def group_value(described: ShownGroup, views: Views) -> dict[str, object]:
    """Return a group for JSON: always with its state, the rest as in `views`."""
    group = described.group
    value: dict[str, object] = {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.protocol,
        "coordinator": group.coordinator,
        "member_count": len(group.members),
    }
    if views.members:
        value["members"] = [_member_value(member) for member in group.members]
    if described.positions is not None:
        value["offsets"] = [_position_value(place) for place in described.positions]
    return value


def _member_value(member: MemberDescription) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "partitions": [str(partition) for partition in sorted(member.assignment)],
    }


def _position_value(place: Position) -> dict[str, object]:
    lag = place.lag
    return {
        "topic": place.partition.topic,
        "partition": place.partition.partition,
        "committed": lag.committed.offset if lag.committed is not None else None,
        "end": lag.end_offset,
        "lag": lag.records,
        "lag_seconds": None if lag.time_ms is None else lag.time_ms / 1000,
        "member_id": place.member.member_id if place.member is not None else None,
    }
