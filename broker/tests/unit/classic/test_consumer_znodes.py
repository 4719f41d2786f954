"""The znodes of consumer groups, byte for byte as Kafka 0.8.2 writes them, and what is refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.base.errors import InvalidGroupIdError
from odradek.base.types import TopicPartition
from odradek.classic import consumer_znodes
from odradek.classic.consumer_znodes import BLACKLIST, WHITELIST, ConsumerRegistration
from odradek.zk import layout
from odradek.znode import LayoutError

KAFKA = b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1416000000000"}'
PATH = "/consumers/g/ids/c"


def test_a_registration_byte_for_byte() -> None:
    registration = ConsumerRegistration(subscription={"t": 2}, timestamp_ms=1_416_000_000_000)
    assert registration.encode() == KAFKA
    assert ConsumerRegistration.decode(KAFKA, PATH) == registration


@pytest.mark.parametrize("pattern", [WHITELIST, BLACKLIST])
def test_a_filter_has_one_expression(pattern: str) -> None:
    registration = ConsumerRegistration(subscription={"log.*|a\\d": 3}, pattern=pattern, timestamp_ms=1)
    assert ConsumerRegistration.decode(registration.encode(), PATH) == registration


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b'{"version":1}', "subscription"),
        (b'{"subscription":{"t":0}}', "subscription"),
        (b'{"subscription":{"t":"1"}}', "subscription"),
        (b'{"subscription":{"t":1},"pattern":"grey_list"}', "pattern"),
        (b'{"subscription":{"t":1,"u":1},"pattern":"white_list"}', "subscription"),
    ],
)
def test_invalid_registrations_name_their_path(data: bytes, reason: str) -> None:
    with pytest.raises(LayoutError, match=rf"{PATH}: .*{reason}"):
        ConsumerRegistration.decode(data, PATH)


def test_a_registration_without_pattern_names_its_topics() -> None:
    assert ConsumerRegistration.decode(b'{"subscription":{"t":1}}', PATH).pattern == "static"


def test_ids_and_paths() -> None:
    token = UUID("0a1b2c3d-0000-4000-8000-000000000000")
    assert consumer_znodes.consumer_id("g", "host", 14160, token) == "g_host-14160-0a1b2c3d"
    partition = TopicPartition("t", 3)
    assert consumer_znodes.members_path("g") == "/consumers/g/ids"
    assert consumer_znodes.member_path("g", "c") == PATH
    assert consumer_znodes.owners_path("g", "t") == "/consumers/g/owners/t"
    assert consumer_znodes.owner_path("g", partition) == "/consumers/g/owners/t/3"
    assert layout.consumer_offset_path("g", partition) == "/consumers/g/offsets/t/3"


def test_offsets() -> None:
    assert layout.decode_consumer_offset(PATH, layout.encode_consumer_offset(42)) == 42
    assert layout.decode_consumer_offset(PATH, b"-1") == -1
    for data in (b"", b"x", b"1.5", b"\xff"):
        with pytest.raises(LayoutError, match=PATH):
            layout.decode_consumer_offset(PATH, data)


@pytest.mark.parametrize("group_id", ["", "a/b", ".", "a\0b"])
def test_group_ids_are_names_of_znodes(group_id: str) -> None:
    with pytest.raises(InvalidGroupIdError, match=r"group\.id="):
        consumer_znodes.check_group_id(group_id)
