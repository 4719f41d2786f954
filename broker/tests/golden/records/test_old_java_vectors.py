"""Sets of formats 0 and 1 that Apache Kafka's Java classes wrote or converted (MakeOldVectors.java).

They are read with the same content, and equal content is encoded to the same bytes, except for compressed data.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import CorruptMessageError
from odradek.compression import Codec, decompress
from odradek.records.conversion.down import down
from odradek.records.conversion.up import up
from odradek.records.formats import check_entry, first_offset, iterate_entries, iterate_records, read_entry
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import LOG_APPEND_TIME_FLAG, TimestampType
from odradek.records.v2.record import Record

FOLDER = Path(__file__).parent
PREFIX = "old_java_3_9_1_"
VECTORS = sorted(path.stem.removeprefix(PREFIX) for path in FOLDER.glob(f"{PREFIX}*.json"))
SETS = [name for name in VECTORS if name.startswith("v")]
DOWN = [name for name in VECTORS if name.startswith("down")]
LIMIT = 1 << 20


def load(name: str) -> dict[str, Any]:
    vector: dict[str, Any] = json.loads((FOLDER / f"{PREFIX}{name}.json").read_text(encoding="utf-8"))
    return vector


def as_row(record: Record) -> dict[str, Any]:
    value = record.value
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": None if record.key is None else record.key.hex(),
        "value_sha256": None if value is None else hashlib.sha256(value).hexdigest(),
    }


def decode(raw: bytes) -> list[Record]:
    records = []
    for position, header in iterate_entries(raw):
        check_entry(raw, position, header)
        records += iterate_records(raw, position, header, limit=LIMIT)
    return records


def unpacked(raw: bytes) -> list[tuple[int, ...] | bytes]:
    """Return the content of a set, which does not depend on the library of the codec."""
    content: list[tuple[int, ...] | bytes] = []
    for position, header in iterate_entries(raw):
        entry = raw[position : position + header.size]
        value_at = 12 + 14 + (8 if header.magic == 1 else 0)
        if header.codec is Codec.NONE:
            content.append(entry)
        else:
            content.append((header.base_offset, header.magic, header.attributes, header.max_timestamp))
            content.append(decompress(header.codec, entry[value_at:], limit=LIMIT, old_frames=True))
    return content


def test_all_vectors_are_here() -> None:
    assert (len(SETS), len(DOWN)) == (12, 26)


@pytest.mark.parametrize("name", VECTORS)
def test_java_sets_are_read(name: str) -> None:
    vector = load(name)
    raw = bytes.fromhex(vector["bytes"])
    records = decode(raw)
    assert [as_row(record) for record in records] == vector["records"]
    header = read_entry(raw)
    assert first_offset(raw, 0, header, limit=LIMIT) == records[0].offset
    assert header.last_offset == (records[0].offset if header.codec is Codec.NONE else records[3].offset)


@pytest.mark.parametrize("name", SETS)
def test_java_sets_are_encoded_to_the_same_bytes(name: str) -> None:
    raw = bytes.fromhex(load(name)["bytes"])
    header = read_entry(raw)
    messages = [record[:4] for record in decode(raw)]
    append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    ours = encode_set(messages, magic=header.magic, codec=header.codec, append_time_ms=append_time_ms)
    assert unpacked(ours) == unpacked(raw)


@pytest.mark.parametrize("name", ["v0_lz4", "down_0_lz4"])
def test_java_s_frames_of_format_0_are_not_today_s(name: str) -> None:
    frame = bytes.fromhex(load(name)["bytes"])[26:]
    assert frame.startswith(bytes.fromhex("04224d186040"))
    with pytest.raises(CorruptMessageError):
        decompress(Codec.LZ4, frame, limit=LIMIT)


@pytest.mark.parametrize("name", DOWN)
def test_conversion_down_is_java_s(name: str) -> None:
    vector = load(name)
    theirs = bytes.fromhex(vector["bytes"])
    source = bytes.fromhex(vector["source"])
    converted = down(source, magic=int(name[5]), first_offset=43)
    assert unpacked(converted.records) == unpacked(theirs)
    rewritten = 0 if read_entry(source).magic == int(name[5]) else len(vector["records"])
    assert (converted.record_count, converted.consumed_bytes) == (rewritten, len(source))


@pytest.mark.parametrize("name", SETS)
def test_conversion_up_keeps_all_there_is(name: str) -> None:
    raw = bytes.fromhex(load(name)["bytes"])
    header = read_entry(raw)
    append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    batch = up(raw, append_time_ms=append_time_ms)
    (entry,) = iterate_entries(batch)
    assert entry[1].codec is header.codec
    expected = TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME
    assert decode(batch) == [record._replace(timestamp_type=expected) for record in decode(raw)]
