"""Batches that Apache Kafka's Java classes wrote (MakeVectors.java) are read with the same content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from odradek.compression import Codec
from odradek.records.v2.batch import (
    BatchBuilder,
    ControlType,
    check_crc,
    read_control_type,
    read_coordinator_epoch,
    read_header,
)
from odradek.records.v2.record import Record, decode_batch
from odradek.records.v2.transactions import marker_batch
from odradek_testkit.batches import frame_records, iterate

FOLDER = Path(__file__).parent
VECTORS = sorted(path.stem.removeprefix("java_3_9_1_") for path in FOLDER.glob("java_3_9_1_*.json"))
LIMIT = 1 << 20


def load(name: str) -> tuple[bytes, list[dict[str, Any]]]:
    vector = json.loads((FOLDER / f"java_3_9_1_{name}.json").read_text(encoding="utf-8"))
    return bytes.fromhex(vector["bytes"]), vector["records"]


def as_row(record: Record) -> dict[str, Any]:
    value = record.value
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": None if record.key is None else record.key.hex(),
        "value_sha256": None if value is None else hashlib.sha256(value).hexdigest(),
        "headers": [[name, None if content is None else content.hex()] for name, content in record.headers],
    }


def decode(raw: bytes) -> list[Record]:
    records = []
    for position, header in iterate(raw):
        check_crc(raw, position, header)
        records += decode_batch(raw, position, header, limit=LIMIT)
    return records


def test_all_vectors_are_here() -> None:
    assert len(VECTORS) == 11


@pytest.mark.parametrize("name", VECTORS)
def test_java_batches_decode(name: str) -> None:
    raw, rows = load(name)
    assert [as_row(record) for record in decode(raw)] == rows


@pytest.mark.parametrize("name", [name for name in VECTORS if not name.startswith("marker")])
def test_java_batches_decode_into_columns(name: str) -> None:
    raw, _ = load(name)
    assert frame_records(raw) == decode(raw)


@pytest.mark.parametrize("name", ["none", "idempotent"])
def test_uncompressed_batches_are_built_byte_for_byte(name: str) -> None:
    raw, _ = load(name)
    header = read_header(raw)
    builder = BatchBuilder(limit_bytes=LIMIT)
    for record in decode_batch(raw, 0, header, limit=LIMIT):
        assert builder.append(record.key, record.value, timestamp_ms=record.timestamp, headers=record.headers)
    assert raw == builder.build(
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


@pytest.mark.parametrize("kind", list(ControlType))
def test_markers_are_built_byte_for_byte(kind: ControlType) -> None:
    raw, _ = load(f"marker_{kind.name.lower()}")
    (marker,) = decode(raw)
    assert read_control_type(marker.key) is kind
    assert read_coordinator_epoch(marker.value) == 11
    assert raw == marker_batch(
        kind,
        producer_id=7777,
        producer_epoch=3,
        coordinator_epoch=11,
        timestamp_ms=1700000000000,
        base_offset=17,
        leader_epoch=5,
    )


def test_header_fields_are_java_s() -> None:
    header = read_header(load("idempotent")[0])
    assert (header.base_offset, header.leader_epoch, header.last_offset, header.next_offset) == (42, 5, 45, 46)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7777, 3, 99, 102)
    assert (header.is_transactional, header.is_control) == (False, False)
    header = read_header(load("transactional")[0])
    assert (header.codec, header.is_transactional, header.max_timestamp) == (Codec.LZ4, True, 1700000009999)
