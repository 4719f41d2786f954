"""The records of MirrorMaker 2. `tests/interop/mirror` compares the bytes with those of its classes."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.mirror.mm2_records import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    checkpoints_topic,
    offset_syncs_topic,
    sync_partition,
)

SYNC = OffsetSync(TopicPartition("orders", 3), 100, 2**40)
CHECKPOINT = Checkpoint("billing", TopicPartition("east.orders", 3), 100, 90, "é")
HEARTBEAT = Heartbeat("east", "dc-mirror", 1_700_000_000_000)


def test_bytes_of_an_offset_sync() -> None:
    assert SYNC.key().hex() == "0006" + b"orders".hex() + "00000003"
    assert SYNC.value().hex() == "0000000000000064" + "0000010000000000"
    assert OffsetSync.decode(SYNC.key(), SYNC.value()) == SYNC
    assert sync_partition(SYNC.key()) == SYNC.partition


def test_bytes_of_a_checkpoint() -> None:
    assert CHECKPOINT.key().hex() == "0007" + b"billing".hex() + "000b" + b"east.orders".hex() + "00000003"
    assert CHECKPOINT.value().hex() == "0000" + "0000000000000064" + "000000000000005a" + "0002c3a9"
    assert Checkpoint.decode(CHECKPOINT.key(), CHECKPOINT.value()) == CHECKPOINT


def test_bytes_of_a_heartbeat() -> None:
    assert HEARTBEAT.key().hex() == "0004" + b"east".hex() + "0009" + b"dc-mirror".hex()
    assert HEARTBEAT.value().hex() == "0000" + "0000018bcfe56800"
    assert Heartbeat.decode(HEARTBEAT.key(), HEARTBEAT.value()) == HEARTBEAT


def test_names_of_the_topics() -> None:
    assert offset_syncs_topic("east") == "mm2-offset-syncs.east.internal"
    assert checkpoints_topic("east") == "east.checkpoints.internal"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"", CHECKPOINT.value(), "ends after 0 bytes"),
        (CHECKPOINT.key() + b"x", CHECKPOINT.value(), "1 bytes too many"),
        (CHECKPOINT.key(), CHECKPOINT.value()[:-1], "in the middle"),
        (CHECKPOINT.key(), b"\x00\x01" + CHECKPOINT.value()[2:], "version 1: only 0"),
        (b"\xff\xff" + CHECKPOINT.key(), CHECKPOINT.value(), "in the middle"),
        (b"\x00\x01\xff" + CHECKPOINT.key(), CHECKPOINT.value(), "not UTF-8"),
    ],
)
def test_other_records_are_refused(key: bytes, value: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Checkpoint.decode(key, value)


def test_a_text_has_a_length_of_two_bytes() -> None:
    with pytest.raises(ConfigError, match="has 32768 bytes"):
        Heartbeat("e" * 32_768, "t", 0).key()
