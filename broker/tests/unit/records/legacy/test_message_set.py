"""Formats 0 and 1: fields of messages, content of wrappers, refusals, and stamping in place."""

from __future__ import annotations

import struct
import tracemalloc
from zlib import crc32

import pytest

from odradek.base.errors import CorruptMessageError, InvalidRecordError, UnsupportedCompressionTypeError
from odradek.compression import Codec, compress
from odradek.records.formats import check_entry, iterate_records, read_entry
from odradek.records.legacy.message_set import first_message_offset, read_message, read_messages, read_set
from odradek.records.legacy.writing import encode_set, encode_wrapper, stamp_offset, stamp_timestamp
from odradek.records.v2.batch import LOG_APPEND_TIME_FLAG, TimestampType
from odradek.records.v2.record import Message, Record

LIMIT = 1 << 20
OLD_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
MESSAGES: list[Message] = [(10, 300, b"k", b"v"), (11, 900, None, b""), (13, 100, b"", None)]


def raw_message(body: bytes, *, offset: int = 0, size: int | None = None, crc: int | None = None) -> bytes:
    """Return a message with `body` from the magic on."""
    return (
        struct.pack(">qiI", offset, len(body) + 4 if size is None else size, crc32(body) if crc is None else crc) + body
    )


def wrapped(inner: bytes, *, magic: int = 1, codec: Codec = Codec.GZIP, offset: int = 0) -> bytes:
    return encode_wrapper((offset, 5, None, inner), magic=magic, codec=codec)


def read(raw: bytes, *, limit: int = LIMIT) -> list[Message]:
    return read_messages(raw, 0, read_message(raw), limit=limit)


def test_a_message_byte_for_byte() -> None:
    in_0 = "0000000000000005 00000011 89e88014 00 00 00000001 6b 00000002 7676"
    in_1 = "0000000000000005 00000019 2cda690c 01 00 0000000000000007 00000001 6b 00000002 7676"
    for magic, expected in ((0, in_0), (1, in_1)):
        assert encode_set([(5, 7, b"k", b"vv")], magic=magic) == bytes.fromhex(expected)


@pytest.mark.parametrize("codec", [Codec.NONE, *OLD_CODECS])
def test_format_1_keeps_all(codec: Codec) -> None:
    raw = encode_set(MESSAGES, magic=1, codec=codec)
    assert read_set(raw, limit=LIMIT) == MESSAGES
    if codec:
        header = read_message(raw)
        assert (header.base_offset, header.max_timestamp, header.codec) == (13, 900, codec)
        assert first_message_offset(raw, 0, header, limit=LIMIT) == 10


@pytest.mark.parametrize("codec", [Codec.NONE, *OLD_CODECS])
def test_format_0_has_no_time(codec: Codec) -> None:
    raw = encode_set(MESSAGES, magic=0, codec=codec, append_time_ms=77)
    assert read_set(raw, limit=LIMIT) == [(offset, -1, key, value) for offset, _, key, value in MESSAGES]
    assert read_message(raw).attributes == codec


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_log_append_time_is_everyone_s(codec: Codec) -> None:
    raw = encode_set(MESSAGES, magic=1, codec=codec, append_time_ms=77)
    assert [message[1] for message in read_set(raw, limit=LIMIT)] == [77, 77, 77]
    header = read_message(raw)
    (first, *_) = iterate_records(raw, 0, header, limit=LIMIT)
    assert first == Record(10, 77, b"k", b"v", (), TimestampType.LOG_APPEND_TIME)


def test_a_wrapper_s_append_time_counts_and_its_create_time_does_not() -> None:
    inner = encode_set([(0, 300, None, b"a"), (1, 900, None, b"b")], magic=1)
    assert [message[1] for message in read(wrapped(inner))] == [300, 900]
    stamped = encode_wrapper((1, 5, None, inner), magic=1, codec=Codec.GZIP, is_append_time=True)
    assert [message[1] for message in read(stamped)] == [5, 5]


def test_inner_offsets_of_format_1_count_back_from_the_wrapper_s() -> None:
    inner = encode_set([(0, 1, None, b"a"), (2, 1, None, b"b")], magic=1)
    assert [message[0] for message in read(wrapped(inner, offset=102))] == [100, 102]


def test_a_wrapper_offset_of_zero_means_that_the_inner_ones_count() -> None:
    inner = encode_set([(0, 1, None, b"a"), (1, 1, None, b"b")], magic=1)
    assert [message[0] for message in read(wrapped(inner, offset=0))] == [0, 1]


def test_a_key_of_a_wrapper_is_ignored() -> None:
    inner = encode_set([(0, 1, None, b"a")], magic=1)
    assert read(encode_wrapper((0, 1, b"key", inner), magic=1, codec=Codec.GZIP)) == [(0, 1, None, b"a")]


def test_unknown_attributes_mean_nothing() -> None:
    raw = raw_message(struct.pack(">BBii", 0, 0xF8, -1, -1))
    header = read_message(raw)
    assert (header.attributes, header.is_control, header.is_transactional) == (0, False, False)
    raw = raw_message(struct.pack(">BBqii", 1, 0xF8, 9, -1, -1))
    assert read_message(raw).attributes == LOG_APPEND_TIME_FLAG


PLAIN = encode_set([(0, 1, b"k", b"v")], magic=1)
NULLS = struct.pack(">BBqii", 1, 0, 0, -1, -1)

CORRUPT_HEADERS = {
    "shorter than any": PLAIN[:25],
    "size below format 1": raw_message(NULLS, size=21),
    "size below format 0": raw_message(struct.pack(">BBii", 0, 0, -1, -1), size=13),
    "size negative": raw_message(NULLS, size=-1),
    "offset negative": raw_message(NULLS, offset=-2),
    "offset without a next one": raw_message(NULLS, offset=2**63 - 1),
}


@pytest.mark.parametrize("raw", CORRUPT_HEADERS.values(), ids=CORRUPT_HEADERS.keys())
def test_impossible_headers_are_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        read_entry(raw)


def test_an_offset_that_is_not_yet_known_is_read() -> None:
    assert read_message(raw_message(NULLS, offset=-1)).base_offset == -1


CORRUPT_FIELDS = {
    "key length below null": struct.pack(">BBqii", 1, 0, 0, -2, -1),
    "value length below null": struct.pack(">BBqii", 1, 0, 0, -1, -2),
    "key beyond the message": struct.pack(">BBqii", 1, 0, 0, 1, -1),
    "absurd key": struct.pack(">BBqii", 1, 0, 0, 2**31 - 1, -1),
    "value beyond the message": struct.pack(">BBqii", 1, 0, 0, -1, 1),
    "bytes behind the value": NULLS + b"x",
    "value does not fill": struct.pack(">BBqii", 1, 0, 0, -1, 1) + b"xy",
}


@pytest.mark.parametrize("body", CORRUPT_FIELDS.values(), ids=CORRUPT_FIELDS.keys())
def test_inconsistent_fields_are_corrupt(body: bytes) -> None:
    raw = raw_message(body)
    for attempt in (
        lambda: read(raw),
        lambda: read_set(raw, limit=LIMIT),
        lambda: read(wrapped(raw)),
        lambda: read_set(PLAIN + raw, limit=LIMIT),
    ):
        with pytest.raises(CorruptMessageError):
            attempt()


CORRUPT_INNER = {
    "cut in a header": PLAIN + PLAIN[:20],
    "cut in a message": PLAIN + PLAIN[:-1],
    "false inner CRC": raw_message(NULLS, crc=1),
    "inner offset negative": raw_message(NULLS, offset=-2),
    "inner size too small": raw_message(NULLS, size=4) + bytes(30),
}


@pytest.mark.parametrize("inner", CORRUPT_INNER.values(), ids=CORRUPT_INNER.keys())
def test_inconsistent_wrapped_sets_are_corrupt(inner: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        read(wrapped(inner))


INVALID_WRAPPERS = {
    "empty": wrapped(b""),
    "wrapper in a wrapper": wrapped(wrapped(PLAIN)),
    "other format inside": wrapped(encode_set([(0, -1, None, b"v")], magic=0)),
    "other format behind": wrapped(encode_set([(0, -1, None, b"v")], magic=0) + PLAIN, magic=0),
    "no value": raw_message(struct.pack(">BBqii", 1, Codec.GZIP, 0, -1, -1)),
    "zstd": raw_message(struct.pack(">BBqii", 1, Codec.ZSTD, 0, -1, 4) + b"zstd"),
    "ends below its last": wrapped(encode_set([(0, 1, None, b"a"), (7, 1, None, b"b")], magic=1), offset=6),
}


@pytest.mark.parametrize("raw", INVALID_WRAPPERS.values(), ids=INVALID_WRAPPERS.keys())
def test_wrappers_that_break_the_rules_are_invalid(raw: bytes) -> None:
    check_entry(raw, 0, read_entry(raw))
    for attempt in (
        lambda: read(raw),
        lambda: read_set(raw, limit=LIMIT),
        lambda: list(iterate_records(raw, 0, read_entry(raw), limit=LIMIT)),
        lambda: first_message_offset(raw, 0, read_message(raw), limit=LIMIT),
    ):
        with pytest.raises(InvalidRecordError):
            attempt()


@pytest.mark.parametrize(
    "raw",
    [
        raw_message(struct.pack(">BBqii", 1, 5, 0, -1, 0)),
        raw_message(struct.pack(">BBqii", 1, Codec.SNAPPY, 0, -1, 7) + b"garbage"),
    ],
    ids=["unknown codec", "garbage"],
)
def test_data_that_cannot_be_decompressed_is_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        read(raw)


def test_inner_offsets_may_not_leave_the_number_range() -> None:
    inner = encode_set([(2**62, 1, None, b"a"), (0, 1, None, b"b")], magic=1)
    with pytest.raises(CorruptMessageError):
        read(wrapped(inner, offset=2**62 + 2**61))


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_bomb_is_refused_within_the_limit(codec: Codec) -> None:
    bomb = wrapped(encode_set([(0, 1, None, bytes(32 << 20))], magic=1), codec=codec)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMessageError):
            read(bomb, limit=LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * LIMIT + len(bomb) * 2


def test_the_limit_of_a_set_is_for_all_its_wrappers() -> None:
    wrapper = encode_set([(0, 1, None, bytes(1000))], magic=1, codec=Codec.GZIP)
    assert len(read_set(wrapper * 3, limit=3400)) == 3
    with pytest.raises(CorruptMessageError):
        read_set(wrapper * 4, limit=3400)


def test_a_set_is_checked_to_its_end() -> None:
    two = encode_set(MESSAGES[:2], magic=0)
    with pytest.raises(CorruptMessageError):
        read_set(two[:-1], limit=LIMIT)
    flipped = bytearray(two)
    flipped[-1] ^= 1
    with pytest.raises(CorruptMessageError):
        read_set(bytes(flipped), limit=LIMIT)
    damaged = bytearray(encode_set(MESSAGES, magic=0, codec=Codec.GZIP))
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessageError, match="CRC"):
        read_set(bytes(damaged), limit=LIMIT)


def test_sets_may_mix_formats_and_wrappers() -> None:
    parts = [
        encode_set([(0, 4, None, b"a")], magic=1),
        encode_set([(1, -1, None, b"b"), (2, -1, None, b"c")], magic=0, codec=Codec.LZ4),
        encode_set([(3, -1, None, b"d")], magic=0),
    ]
    assert [message[0] for message in read_set(b"".join(parts), limit=LIMIT)] == [0, 1, 2, 3]
    assert read_set(b"", limit=LIMIT) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_not_written(magic: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError):
        encode_set(MESSAGES, magic=magic, codec=Codec.ZSTD)


def test_a_wrapper_of_nothing_is_not_written() -> None:
    assert encode_set([], magic=1) == b""
    with pytest.raises(ValueError, match="at least one"):
        encode_set([], magic=1, codec=Codec.GZIP)


def test_lz4_has_the_old_frame_in_format_0_and_either_is_read() -> None:
    inner = encode_set([(0, -1, None, b"a")], magic=0)
    old, right = compress(Codec.LZ4, inner, old_frames=True), compress(Codec.LZ4, inner)
    assert encode_set([(0, -1, None, b"a")], magic=0, codec=Codec.LZ4).endswith(old)
    assert encode_set([(0, 1, None, b"a")], magic=1, codec=Codec.LZ4)[34 + 6] == right[6] != old[6]
    for magic, lead in ((0, b""), (1, bytes(8))):
        content = encode_set([(0, 0, None, b"a")], magic=magic)
        for old_frames in (False, True):
            frame = compress(Codec.LZ4, content, old_frames=old_frames)
            raw = raw_message(
                struct.pack(">BB", magic, Codec.LZ4) + lead + struct.pack(">ii", -1, len(frame)) + frame, offset=9
            )
            assert read(raw)[0][3] == b"a"


def test_offsets_are_numbered_outside_the_crc() -> None:
    raw = bytearray(PLAIN)
    stamp_offset(raw, 0, 2**40)
    header = read_entry(raw)
    check_entry(raw, 0, header)
    assert header.base_offset == 2**40


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_timestamps_are_stamped_with_a_new_crc(codec: Codec) -> None:
    raw = bytearray(b"ahead" + encode_set(MESSAGES[:1], magic=1, codec=codec))
    stamp_timestamp(raw, 5, read_message(raw, 5), 4242)
    header = read_message(raw, 5)
    check_entry(raw, 5, header)
    assert (header.max_timestamp, header.timestamp_type, header.codec) == (4242, TimestampType.LOG_APPEND_TIME, codec)
    assert read_messages(raw, 5, header, limit=LIMIT)[0][1] == 4242
    stamp_timestamp(raw, 5, header, 900, TimestampType.CREATE_TIME)
    header = read_message(raw, 5)
    check_entry(raw, 5, header)
    assert (header.max_timestamp, header.timestamp_type, header.codec) == (900, TimestampType.CREATE_TIME, codec)


def test_format_0_cannot_be_stamped_with_a_time() -> None:
    raw = bytearray(encode_set(MESSAGES[:1], magic=0))
    with pytest.raises(ValueError, match="no timestamps"):
        stamp_timestamp(raw, 0, read_message(raw), 1)
