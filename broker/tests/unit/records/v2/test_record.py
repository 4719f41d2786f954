"""Decoding records one by one: refusals, and numbers inside records."""

from __future__ import annotations

import pytest

from odradek.base.errors import CorruptMessageError
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder
from odradek.records.v2.record import Record, decode_batch
from odradek.records.v2.varint import decode_varint, encode_varint

LIMIT = 1 << 20


def batch_of(section: bytes, count: int, last_offset_delta: int = 0) -> bytes:
    builder = BatchBuilder(limit_bytes=LIMIT)
    builder.append(None, None, timestamp_ms=0)
    header = batch.read_header(builder.build())
    return batch.assemble(header._replace(record_count=count, last_offset_delta=last_offset_delta), section)


def record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


SOUND = b"\x00\x00\x00" + encode_varint(1) + b"k" + encode_varint(-1) + b"\x00"
"""Attributes, no deltas, key `k`, a null value, no headers."""


def test_sound_section() -> None:
    raw = batch_of(record(SOUND), 1)
    assert decode_batch(raw, 0, batch.read_header(raw), limit=LIMIT) == [Record(0, 0, b"k", None)]


BROKEN = {
    "fewer records than claimed": (record(SOUND), 2),
    "more records than claimed": (record(SOUND) * 2, 1),
    "absurd count": (record(SOUND), 2**31 - 1),
    "length beyond the batch": (encode_varint(9) + SOUND, 1),
    "length zero": (b"\x00" + SOUND, 1),
    "negative length": (encode_varint(-8) + SOUND, 1),
    "field beyond the record": (record(SOUND[:3] + encode_varint(5) + SOUND[4:]) + b"....", 1),
    "field length -2": (record(SOUND[:3] + encode_varint(-2) + SOUND[5:]), 1),
    "absurd field length": (record(SOUND[:3] + encode_varint(2**62) + SOUND[5:]), 1),
    "bytes behind the headers": (record(SOUND + b"\x00"), 1),
    "offset outside the batch": (record(SOUND[:2] + encode_varint(1) + SOUND[3:]), 1),
    "negative offset": (record(SOUND[:2] + encode_varint(-1) + SOUND[3:]), 1),
    "negative header count": (record(SOUND[:-1] + encode_varint(-1)), 1),
    "absurd header count": (record(SOUND[:-1] + encode_varint(2**31)), 1),
    "header without a name": (record(SOUND[:-1] + encode_varint(1) + encode_varint(-1) + encode_varint(-1)), 1),
    "header value cut": (record(SOUND[:-1] + encode_varint(1) + encode_varint(0) + encode_varint(4)), 1),
    "number of eleven bytes": (record(b"\x00" + b"\x80" * 10 + b"\x00" + SOUND[2:]), 1),
    "number above 64 bits": (record(b"\x00" + b"\xff" * 9 + b"\x02" + SOUND[2:]), 1),
    "number cut at the end": (record(SOUND)[:-1] + b"\x80", 1),
}


@pytest.mark.parametrize(("section", "count"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_section_is_corrupt(section: bytes, count: int) -> None:
    raw = batch_of(section, count)
    with pytest.raises(CorruptMessageError):
        decode_batch(raw, 0, batch.read_header(raw), limit=LIMIT)


def test_timestamps_do_not_wrap_around() -> None:
    raw = batch_of(record(b"\x00" + encode_varint(1) + SOUND[2:]), 1)
    header = batch.read_header(raw)._replace(base_timestamp=2**63 - 1)
    with pytest.raises(CorruptMessageError):
        decode_batch(raw, 0, header, limit=LIMIT)


def test_header_names_that_are_no_utf8_become_replacement_characters() -> None:
    name = record(b"\xff")
    raw = batch_of(record(SOUND[:-1] + encode_varint(1) + name + encode_varint(-1)), 1)
    (decoded,) = decode_batch(raw, 0, batch.read_header(raw), limit=LIMIT)
    assert decoded.headers == (("\N{REPLACEMENT CHARACTER}", None),)


def test_size_counts_key_value_and_headers() -> None:
    assert Record(0, 0, b"ab", b"cde", (("n", b"four"), ("m", None))).size_bytes == 11


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-65, "8101"), (2**63 - 1, "fe" + "ff" * 8 + "01")],
)
def test_varints_of_the_specification(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)
