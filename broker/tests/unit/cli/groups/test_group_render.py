"""Tables and JSON values of consumer groups."""

from __future__ import annotations

import pytest

from odradek.base.types import TopicPartition
from odradek.cli.groups import group_render
from odradek.cli.groups.group_render import ShownGroup, Views
from odradek.client.models import GroupDescription, GroupLag, GroupListing, MemberDescription, OffsetAndMetadata


def at(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


GROUP = GroupDescription(
    group_id="billing",
    state="Stable",
    protocol_type="consumer",
    protocol="range",
    coordinator=2,
    members=(
        MemberDescription(
            member_id="m-1", group_instance_id=None, client_id="app", client_host="/10.0.0.1", assignment=(at(0), at(2))
        ),
    ),
)
EMPTY = GroupDescription(group_id="idle", state="Empty", protocol_type="", protocol="", coordinator=1)
LAGS = {
    at(1): GroupLag(OffsetAndMetadata(7), 5, 0),
    at(0): GroupLag(OffsetAndMetadata(10), 15, 90_000),
    at(2): GroupLag(None, 4),
}
BILLING = ShownGroup(GROUP, group_render.positions(GROUP, LAGS))


def test_lag_is_never_negative_and_unknown_without_a_commit() -> None:
    assert [(place.partition, place.lag.records) for place in group_render.positions(GROUP, LAGS)] == [
        (at(0), 5),
        (at(1), 0),
        (at(2), None),
    ]
    assert GroupLag(OffsetAndMetadata(3), None).records is None


def test_all_views_of_a_group() -> None:
    offsets, members = group_render.tables([BILLING], Views())
    title = "Group billing, Stable, 1 member, assignor range, coordinator 2, lag 5 records, 1 min 30 s behind"
    assert offsets.title == title
    assert offsets.rows == (
        ("orders", "0", "10", "15", "5", "1 min 30 s", "app", "/10.0.0.1"),
        ("orders", "1", "7", "5", "0", "0 s", "-", "-"),
        ("orders", "2", "-", "4", "-", "-", "app", "/10.0.0.1"),
    )
    assert (members.title, members.rows) == ("", (("m-1", "-", "app", "/10.0.0.1", "orders:0,2"),))


def test_a_group_without_members_has_no_table_of_members_unless_it_is_requested() -> None:
    idle = ShownGroup(EMPTY, ())
    (table,) = group_render.tables([idle], Views())
    assert (table.title, table.rows) == ("Group idle, Empty, 0 members, coordinator 1, lag 0 records", ())
    (table,) = group_render.tables([ShownGroup(EMPTY, None)], Views(offsets=False, state=False))
    assert (table.title, table.empty) == ("Group idle, Empty, 0 members, coordinator 1", "The group has no members.")


def test_only_states() -> None:
    groups = [ShownGroup(GROUP, None), ShownGroup(EMPTY, None)]
    (table,) = group_render.tables(groups, Views(offsets=False, members=False))
    assert table.rows == (("billing", "Stable", "1", "range", "2"), ("idle", "Empty", "0", "-", "1"))
    (table,) = group_render.tables([], Views())
    assert (table.rows, table.empty) == ((), "There are no groups.")


def test_a_group_for_programs() -> None:
    value = group_render.group_value(BILLING, Views())
    assert value["members"] == [
        {
            "member_id": "m-1",
            "group_instance_id": None,
            "client_id": "app",
            "host": "/10.0.0.1",
            "partitions": ["orders-0", "orders-2"],
        }
    ]
    assert value["offsets"][0] == {  # type: ignore[index]
        "topic": "orders",
        "partition": 0,
        "committed": 10,
        "end": 15,
        "lag": 5,
        "lag_seconds": 90.0,
        "member_id": "m-1",
    }
    assert value["offsets"][2]["lag"] is None  # type: ignore[index]
    state = group_render.group_value(ShownGroup(GROUP, None), Views(offsets=False, members=False))
    assert state == {
        "group": "billing",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "range",
        "coordinator": 2,
        "member_count": 1,
    }


def test_a_list_of_groups() -> None:
    groups = [
        GroupListing(group_id="a", protocol_type="consumer", state="Stable", group_type="classic"),
        GroupListing(group_id="b", protocol_type=""),
    ]
    assert group_render.group_list(groups).rows == (
        ("a", "Stable", "classic", "consumer"),
        ("b", "Unknown", "-", "-"),
    )
    assert group_render.listed_value(groups[1]) == {"group": "b", "state": None, "type": None, "protocol_type": ""}


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "0 s"),
        (49, "0 s"),
        (1_250, "1.2 s"),
        (59_999, "59.9 s"),
        (60_000, "1 min 0 s"),
        (3_725_000, "1 h 2 min"),
        (200_000_000, "2 d 7 h"),
    ],
)
def test_ages(time_ms: int, text: str) -> None:
    assert group_render.age(time_ms) == text
