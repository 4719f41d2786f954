"""Each rule for the entries of an append, with the error of its violation."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OdradekError,
    UnsupportedCompressionTypeError,
)
from odradek.compression import Codec
from odradek.records.checks.validate import AppendOrigin, AppendRules, check_append, rules_of_topic
from odradek.records.legacy.writing import encode_set
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, ControlType, TimestampType
from odradek.records.v2.transactions import marker_batch

NOW_MS = 1_000_000


def rules(**changes: Any) -> AppendRules:
    return AppendRules(**{"max_message_bytes": 1 << 20, "now_ms": NOW_MS, **changes})


def built(*timestamps_ms: int, codec: Codec = Codec.NONE, key: bytes | None = b"k", **values: int) -> bytes:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
    for timestamp_ms in timestamps_ms or (NOW_MS,):
        builder.append(key, b"value", timestamp_ms=timestamp_ms)
    return builder.build(**values)


def refit(raw: bytes, **fields: int) -> bytes:
    """Return the batch with changed header fields and a correct CRC."""
    return batch.assemble(batch.read_header(raw)._replace(**fields), raw[batch.HEADER_SIZE :])


def marker(base_offset: int = 0) -> bytes:
    return marker_batch(
        ControlType.COMMIT,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=NOW_MS,
        base_offset=base_offset,
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_a_valid_batch_passes(codec: Codec) -> None:
    raw = built(1, 2, 3, codec=codec, producer_id=5, producer_epoch=0, base_sequence=0)
    (header,) = check_append(memoryview(raw), rules(compacted=True))
    assert header == batch.read_header(raw)


APPEND_TIME = {"timestamp_type": TimestampType.LOG_APPEND_TIME}

BREACHES: list[tuple[str, bytes, dict[str, object], type[OdradekError]]] = [
    ("nothing", b"", {}, InvalidRecordError),
    ("a piece of a header", built()[:60], {}, InvalidRecordError),
    ("cut short", built()[:-1], {}, InvalidRecordError),
    ("negative count", refit(built(), record_count=-1), {}, InvalidRecordError),
    ("negative delta", refit(built(), last_offset_delta=-1), {}, InvalidRecordError),
    ("negative count, wrong CRC", refit(built(), record_count=-1)[:-1] + b"\x01", {}, CorruptMessageError),
    ("length below a header", built()[:8] + bytes(4) + built()[12:], {}, CorruptMessageError),
    ("zeros behind", built() + bytes(12), {}, CorruptMessageError),
    ("noise behind", built() + b"\x7f" * 17, {}, CorruptMessageError),
    ("format 3", built()[:16] + b"\x03" + built()[17:], {}, CorruptMessageError),
    ("two batches", built() + built(), {}, InvalidRecordError),
    ("old format", built()[:16] + b"\x01" + built()[17:], {}, InvalidRecordError),
    ("wrong CRC", built()[:-1] + b"\x01", {}, CorruptMessageError),
    ("too large", built(), {"max_message_bytes": len(built()) - 1}, MessageTooLargeError),
    ("base offset", built(base_offset=1), {}, InvalidRecordError),
    ("count above delta", refit(built(1, 2), record_count=3), {}, InvalidRecordError),
    ("count below delta", refit(built(1, 2), record_count=1), {}, InvalidRecordError),
    ("no record", refit(built(), record_count=0), {}, InvalidRecordError),
    ("control", marker(), {}, InvalidRecordError),
    ("producer without sequence", built(producer_id=3, producer_epoch=0), {}, InvalidRecordError),
    ("transaction without producer", built(is_transactional=True), {}, InvalidRecordError),
    ("codec 5", refit(built(), attributes=5), {}, UnsupportedCompressionTypeError),
    ("early zstd", built(codec=Codec.ZSTD), {"zstd_allowed": False}, UnsupportedCompressionTypeError),
    ("append time", refit(built(), attributes=batch.LOG_APPEND_TIME_FLAG), APPEND_TIME, InvalidTimestampError),
    ("append time, none", refit(built(-1), attributes=batch.LOG_APPEND_TIME_FLAG), {}, InvalidTimestampError),
    ("future", built(NOW_MS + 11), {"timestamp_after_max_ms": 10, "validate_records": False}, InvalidTimestampError),
]


@pytest.mark.parametrize(("raw", "changes", "error"), [row[1:] for row in BREACHES], ids=[row[0] for row in BREACHES])
def test_each_rule_for_clients_is_enforced(raw: bytes, changes: dict[str, object], error: type[OdradekError]) -> None:
    with pytest.raises(OdradekError) as caught:
        check_append(memoryview(raw), rules(**changes))
    assert type(caught.value) is error


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60, 61, 70])
def test_a_partial_entry_at_the_end_is_ignored(size: int) -> None:
    assert check_append(memoryview(built() + built()[:size]), rules()) == (batch.read_header(built()),)
    (header,) = check_append(memoryview(ONE + ONE[: min(size, len(ONE) - 1)]), rules(any_format=True))
    assert header.size == len(ONE)


def test_a_producer_may_come_without_an_epoch() -> None:
    raw = built(producer_id=3, base_sequence=0)
    assert check_append(memoryview(raw), rules()) == (batch.read_header(raw),)


@pytest.mark.parametrize("any_format", [True, False])
def test_a_claim_of_log_append_time_passes_where_the_producer_s_time_counts(*, any_format: bool) -> None:
    raw = refit(built(), attributes=batch.LOG_APPEND_TIME_FLAG)
    assert check_append(memoryview(raw), rules(any_format=any_format)) == (batch.read_header(raw),)
    assert len(check_append(memoryview(message_set(append_time=True)), rules(any_format=True))) == 2


def test_a_header_at_the_bounds_passes() -> None:
    bounds = rules(timestamp_before_max_ms=10, timestamp_after_max_ms=10, validate_records=False)
    check_append(memoryview(built(NOW_MS - 10, NOW_MS + 10)), bounds)
    check_append(memoryview(built(-1)), bounds)


def test_the_time_of_a_header_does_not_matter_where_the_broker_sets_it() -> None:
    bounds = rules(timestamp_after_max_ms=10, timestamp_type=TimestampType.LOG_APPEND_TIME, validate_records=False)
    check_append(memoryview(built(1, 10 * NOW_MS)), bounds)


def test_replication_takes_batches_as_the_leader_wrote_them() -> None:
    compacted = refit(built(1, 2, base_offset=7), last_offset_delta=9)
    raw = built(base_offset=3) + compacted + marker(base_offset=17)
    headers = check_append(memoryview(raw), rules(origin=AppendOrigin.REPLICATION, max_message_bytes=1))
    assert [header.base_offset for header in headers] == [3, 7, 17]


@pytest.mark.parametrize(
    "raw",
    [b"", built()[:-1], built() + built()[:30], built(1, 2) + built(base_offset=1), built()[:-1] + b"\x01"],
    ids=["empty", "cut", "tail", "backwards", "crc"],
)
def test_replication_refuses_what_is_not_tiled(raw: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        check_append(memoryview(raw), rules(origin=AppendOrigin.REPLICATION))


def test_coordinators_may_write_several_batches_and_markers_up_to_the_size() -> None:
    raw = built() + marker()
    assert len(check_append(memoryview(raw), rules(origin=AppendOrigin.COORDINATOR))) == 2
    with pytest.raises(MessageTooLargeError):
        check_append(memoryview(raw), rules(origin=AppendOrigin.COORDINATOR, max_message_bytes=len(built()) - 1))


# Formats 0 and 1


def message_set(
    *values: bytes, magic: int = 1, codec: Codec = Codec.NONE, timestamp_ms: int = NOW_MS, append_time: bool = False
) -> bytes:
    messages = [(offset, timestamp_ms, b"k", value) for offset, value in enumerate(values or (b"a", b"b"))]
    return encode_set(messages, magic=magic, codec=codec, append_time_ms=timestamp_ms if append_time else None)


def with_attributes(message: bytes, attributes: int) -> bytes:
    """Return the message with changed attributes and a correct CRC."""
    body = message[16:17] + bytes((attributes,)) + message[18:]
    return message[:12] + crc32(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_sound_message_set_passes_where_old_clients_may_send_it(magic: int, codec: Codec) -> None:
    raw = message_set(b"a", b"b", b"c", magic=magic, codec=codec)
    headers = check_append(memoryview(raw), rules(any_format=True))
    assert [header.magic for header in headers] == [magic] * (1 if codec else 3)
    assert sum(header.size for header in headers) == len(raw)
    with pytest.raises(InvalidRecordError):
        check_append(memoryview(raw), rules())


ONE = message_set(b"one")
PACKED = message_set(b"one", b"two", codec=Codec.GZIP)

MESSAGE_BREACHES: list[tuple[str, bytes, dict[str, object], type[OdradekError]]] = [
    ("cut short", ONE[:-1], {}, InvalidRecordError),
    ("a piece of a header", ONE[:20], {}, InvalidRecordError),
    ("zeros behind", ONE + bytes(12), {}, CorruptMessageError),
    ("two formats", ONE + message_set(b"two", magic=0), {}, InvalidRecordError),
    ("a batch behind", ONE + built(), {}, InvalidRecordError),
    ("two wrappers", PACKED + PACKED, {}, InvalidRecordError),
    ("a wrapper and a message", PACKED + ONE, {}, InvalidRecordError),
    ("a message and a wrapper", ONE + PACKED, {}, InvalidRecordError),
    ("wrong CRC", ONE[:-1] + b"\x01", {}, CorruptMessageError),
    ("wrong CRC in the second", ONE + ONE[:-1] + b"\x01", {}, CorruptMessageError),
    ("size below a message", ONE[:8] + bytes(4) + ONE[12:], {}, CorruptMessageError),
    ("too large", ONE + message_set(b"four"), {"max_message_bytes": len(ONE)}, MessageTooLargeError),
    ("zstd", with_attributes(ONE, Codec.ZSTD), {}, InvalidRecordError),
    ("codec 5", with_attributes(ONE, 5), {}, UnsupportedCompressionTypeError),
    ("append time", message_set(append_time=True), APPEND_TIME, InvalidTimestampError),
    ("append time, none", message_set(append_time=True, timestamp_ms=-1), {}, InvalidTimestampError),
]


@pytest.mark.parametrize(
    ("raw", "changes", "error"), [row[1:] for row in MESSAGE_BREACHES], ids=[row[0] for row in MESSAGE_BREACHES]
)
def test_each_rule_for_old_clients_is_enforced(
    raw: bytes, changes: dict[str, object], error: type[OdradekError]
) -> None:
    with pytest.raises(OdradekError) as caught:
        check_append(memoryview(raw), rules(any_format=True, **changes))
    assert type(caught.value) is error


def test_clients_before_format_2_may_send_it_all_the_same() -> None:
    assert check_append(memoryview(built()), rules(any_format=True)) == (batch.read_header(built()),)


def test_replication_takes_all_formats_one_after_the_other() -> None:
    old = encode_set([(4, 1, b"k", b"v"), (9, 1, b"k", b"v")], magic=0)
    wrapper = encode_set([(11, 1, b"k", b"v"), (12, 1, b"k", b"v")], magic=1, codec=Codec.LZ4)
    headers = check_append(memoryview(old + wrapper + built(base_offset=13)), rules(origin=AppendOrigin.REPLICATION))
    assert [header.last_offset for header in headers] == [4, 9, 12, 13]


@pytest.mark.parametrize(
    "raw",
    [
        encode_set([(4, 1, b"k", b"v"), (4, 1, b"k", b"v")], magic=0),
        encode_set([(-1, 1, b"k", b"v")], magic=1),
        encode_set([(4, 1, b"k", b"v")], magic=0) + built(base_offset=4),
        encode_set([(4, 1, b"k", b"v")], magic=0)[:-1],
        encode_set([(4, 1, b"k", b"v")], magic=0)[:-1] + b"w",
    ],
    ids=["repeated", "without offset", "batch at a message", "cut", "crc"],
)
def test_replication_refuses_old_messages_that_are_not_in_order_or_unsound(raw: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        check_append(memoryview(raw), rules(origin=AppendOrigin.REPLICATION))


def test_the_rules_of_a_topic_are_those_of_its_settings() -> None:
    broker = BrokerConfig()
    settings = {
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "5",
        "message.timestamp.after.max.ms": "6",
        "cleanup.policy": "compact",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
    }
    made = rules_of_topic(TopicConfig.of(broker, settings), validate_records=False)
    expected = AppendRules(
        max_message_bytes=broker.message_max_bytes,
        now_ms=0,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        timestamp_before_max_ms=5,
        timestamp_after_max_ms=6,
        compacted=True,
        codec=Codec.ZSTD,
        compression_level=7,
        validate_records=False,
        decompressed_limit_bytes=64 * broker.message_max_bytes,
    )
    for name in AppendRules.__slots__:
        assert getattr(made, name) == getattr(expected, name), name


@pytest.mark.parametrize(
    ("name", "codec"), [("producer", None), ("uncompressed", Codec.NONE), ("gzip", Codec.GZIP), ("lz4", Codec.LZ4)]
)
def test_compression_type(name: str, codec: Codec | None) -> None:
    config = TopicConfig.of(BrokerConfig(), {"compression.type": name})
    assert rules_of_topic(config, validate_records=True).codec == codec
