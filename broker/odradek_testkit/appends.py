"""Builds valid and invalid record sets, produces them, and returns the broker's response and what it appended.

The comparison with Apache Kafka uses it. Invariant: two brokers that behave the same give equal results. Therefore
offsets are relative to the offset in the response, and a time that the broker set is replaced by `BY_BROKER`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.compression import Codec, compress
from odradek.protocol.hotpath_produce import (
    ProducedPartition,
    ProduceRequest,
    decode_produce_response,
    encode_produce_request,
)
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.legacy.writing import encode_set, encode_wrapper
from odradek.records.v2.batch import HEADER_SIZE, MAGIC, BatchBuilder, BatchHeader, assemble, read_header
from odradek.records.v2.record import Record
from odradek.records.v2.varint import encode_varint

BY_BROKER: Final = -(1 << 62)
"""Placeholder for the time at which the broker appended."""

TIMEOUT_SECONDS: Final = 30.0
_LIMIT_BYTES: Final = 1 << 28
_SIZE: Final = Struct(">i")
_VALUES: Final = (b"a" * 100, b"b" * 100)
_BODY_AT: Final = 16
"""Position of the first byte that the CRC of a message covers."""


# Format 2


def batch_of(
    *values: bytes,
    now_ms: int,
    codec: Codec = Codec.NONE,
    key: bytes | None = b"k",
    headers: Sequence[tuple[str, bytes | None]] = (),
    step_ms: int = 1,
    **fields: Any,
) -> bytes:
    """Return a batch of these values (default: two) with times from `now_ms`; `fields` are for `BatchBuilder.build`."""
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 30)
    for number, value in enumerate(values or _VALUES):
        builder.append(key, value, timestamp_ms=now_ms + number * step_ms, headers=headers)
    return builder.build(**fields)


def refit(raw: bytes, **fields: int) -> bytes:
    """Return the batch with changed header fields and a correct CRC."""
    return assemble(read_header(raw)._replace(**fields), raw[HEADER_SIZE:])


def batch_around(section: bytes, count: int, *, now_ms: int, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch that declares `count` records and contains any bytes, compressed with `codec`."""
    header = read_header(batch_of(b"v", now_ms=now_ms))
    header = header._replace(record_count=count, last_offset_delta=count - 1, attributes=int(codec))
    return assemble(header, compress(codec, section))


def record_body(
    number: int, *, key: bytes | None = b"k", value: bytes | None = b"v" * 70, headers: bytes = b"\x00"
) -> bytes:
    """Return a record without its length; `headers` begins with their count."""
    parts = [b"\x00\x00", encode_varint(number)]
    for content in (key, value):
        parts += [encode_varint(-1)] if content is None else [encode_varint(len(content)), content]
    return b"".join((*parts, headers))


def record(body: bytes, *, longer: int = 0) -> bytes:
    """Return the body after its length, to which `longer` is added."""
    return encode_varint(len(body) + longer) + body


# Formats 0 and 1


def message_set(
    *values: bytes,
    now_ms: int,
    magic: int = 1,
    codec: Codec = Codec.NONE,
    begin: int = 0,
    step: int = 1,
    key: bytes | None = b"k",
    append_time_ms: int | None = None,
) -> bytes:
    """Return messages of these values (default: two), a millisecond apart, with offsets from `begin` by `step`."""
    messages = [(begin + step * number, now_ms + number, key, value) for number, value in enumerate(values or _VALUES)]
    return encode_set(messages, magic=magic, codec=codec, append_time_ms=append_time_ms)


def wrapper(inner: bytes, *, offset: int, now_ms: int, is_append_time: bool = False) -> bytes:
    """Return a format 1 wrapper around any bytes."""
    return encode_wrapper((offset, now_ms, None, inner), magic=1, codec=Codec.GZIP, is_append_time=is_append_time)


def with_attributes(message: bytes, attributes: int) -> bytes:
    """Return a message with other attributes and a correct CRC."""
    body = message[_BODY_AT : _BODY_AT + 1] + bytes((attributes,)) + message[_BODY_AT + 2 :]
    return message[: _BODY_AT - 4] + crc32(body).to_bytes(4, "big") + body


# Brokers


class Answer(NamedTuple):
    """The response of a broker to a record set, and what it appended."""

    code: int
    faulty: tuple[int, ...] = ()
    """Indexes of the records that the response reports (KIP-467)."""
    is_timed: bool = False
    """Whether the response has a log append time."""
    headers: tuple[BatchHeader, ...] = ()
    """Headers of the appended entries, with offsets relative to the response's, and CRC and length 0."""
    records: tuple[Record, ...] = ()


class Target(NamedTuple):
    """A broker on this machine."""

    port: int
    data: Path
    """The log directory of the broker."""


def answer_to(target: Target, topic: str, raw: bytes, version: int) -> Answer:
    """Produce only `raw` to partition 0 of `topic`, with this version of the API."""
    log = target.data / f"{topic}-0" / f"{0:020}.log"
    before = log.stat().st_size
    produced = produce(target.port, topic, raw, version)
    faulty = tuple(sorted(error.batch_index for error in produced.record_errors))
    with log.open("rb") as file:
        file.seek(before)
        added = file.read()
    if produced.error_code:
        if added:
            raise OdradekError(
                f"{topic}: the response has error {produced.error_code}, but {len(added)} bytes were appended"
            )
        return Answer(produced.error_code, faulty)
    return Answer(
        0, faulty, produced.log_append_time_ms >= 0, tuple(_headers(added, produced)), tuple(_records(added, produced))
    )


def produce(port: int, topic: str, raw: bytes, version: int) -> ProducedPartition:
    """Return the response of a broker to one record set. Raises `OSError` if it closes the connection."""
    request = ProduceRequest(None, 1, 10_000, [(TopicPartition(topic, 0), memoryview(raw))])
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
        connection.sendall(b"".join(encode_produce_request(version, 7, "judge", request)))
        with connection.makefile("rb") as stream:
            head = stream.read(_SIZE.size)
            if len(head) < _SIZE.size:
                raise ConnectionError(f"{topic}: the broker closed the connection")
            frame = stream.read(_SIZE.unpack(head)[0])
    return decode_produce_response(version, frame).partitions[0]


def _headers(added: bytes, produced: ProducedPartition) -> Iterable[BatchHeader]:
    for _, header in iterate_entries(added):
        newest = _time(header.max_timestamp, produced)
        yield header._replace(
            base_offset=header.base_offset - produced.base_offset,
            base_timestamp=header.base_timestamp if header.magic == MAGIC else newest,
            max_timestamp=newest,
            batch_length=0,
            crc=0,
        )


def _records(added: bytes, produced: ProducedPartition) -> Iterable[Record]:
    for position, header in iterate_entries(added):
        for each in iterate_records(added, position, header, limit=_LIMIT_BYTES):
            yield Record(
                each.offset - produced.base_offset,
                _time(each.timestamp, produced),
                each.key,
                each.value,
                each.headers,
                each.timestamp_type,
            )


def _time(timestamp_ms: int, produced: ProducedPartition) -> int:
    return BY_BROKER if timestamp_ms == produced.log_append_time_ms >= 0 else timestamp_ms
