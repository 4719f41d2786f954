"""Measures Produce, Fetch and the general codec per request and per partition, in comparison with kio.

Run by hand: `python broker/tests/bench/protocol_hotpath.py`. Prints microseconds; compare the columns of one run only.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from importlib import import_module
from timeit import repeat
from typing import Any
from uuid import UUID

from kio.serial import entity_reader, entity_writer

from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import decode_header, decode_request, decode_response, encode_response
from odradek.protocol.hotpath import (
    FetchedPartition,
    FetchEntry,
    FetchRequest,
    ProducedPartition,
    ProduceRequest,
    decode_fetch,
    decode_fetch_response,
    decode_produce,
    decode_produce_response,
    encode_fetch_request,
    encode_fetch_response,
    encode_produce_request,
    encode_produce_response,
)

TOPIC_ID = UUID(int=7)


def best_us(run: Callable[[], object]) -> float:
    """Return the best of seven measurements, in microseconds per call."""
    number = 200
    return min(repeat(run, number=number, repeat=7)) / number * 1e6


def report(name: str, ours: Callable[[], object], kios: Callable[[], object] | None = None) -> None:
    """Print one line of the table."""
    theirs = f"{best_us(kios):10.1f}" if kios is not None else " " * 10
    sys.stdout.write(f"{name:44s}{best_us(ours):10.1f}{theirs}\n")


def kio_type(api: str, version: int, direction: str) -> Any:
    """Return kio's class of a message."""
    return getattr(import_module(f"kio.schema.{api.lower()}.v{version}.{direction}"), api + direction.capitalize())


def produce(version: int, count: int) -> None:
    entries = [(TopicPartition("orders", number), memoryview(bytes(1000))) for number in range(count)]
    request = ProduceRequest(None, -1, 30_000, entries)
    frame = memoryview(b"".join(encode_produce_request(version, 1, "producer-1", request)))[4:]
    _, position = decode_header(frame)
    read = entity_reader(kio_type("Produce", version, "request"))
    rows = [ProducedPartition(tp, 0, 5, -1, 0) for tp, _ in entries]
    response = encode_produce_response(version, 1, rows)[4:]
    label = f"Produce {version}, {count} partitions"
    report(
        f"{label}: decode request",
        lambda: decode_produce(version, frame, position),
        lambda: read(bytes(frame), position),
    )
    report(f"{label}: encode response", lambda: encode_produce_response(version, 1, rows))
    report(f"{label}: encode request", lambda: encode_produce_request(version, 1, "producer-1", request))
    report(f"{label}: decode response", lambda: decode_produce_response(version, response))


def fetch(version: int, count: int) -> None:
    by_id = version >= 13
    topic, topic_id = (None, TOPIC_ID) if by_id else ("orders", None)
    entries = [FetchEntry(topic, topic_id, number, 3, 1_000, -1, -1, 1 << 20) for number in range(count)]
    request = FetchRequest(500, 1, 50 << 20, entries)
    frame = memoryview(encode_fetch_request(version, 1, "consumer-1", request))[4:]
    _, position = decode_header(frame)
    read = entity_reader(kio_type("Fetch", version, "request"))
    raw = bytes(frame)
    rows = [FetchedPartition(topic, topic_id, number, 0, 9, 9, 0, b"r" * 1000) for number in range(count)]
    response = memoryview(b"".join(encode_fetch_response(version, 1, rows)))[4:]
    label = f"Fetch {version}, {count} partitions"
    report(f"{label}: decode request", lambda: decode_fetch(version, frame, position), lambda: read(raw, position))
    report(f"{label}: encode response", lambda: encode_fetch_response(version, 1, rows))
    report(f"{label}: encode request", lambda: encode_fetch_request(version, 1, "consumer-1", request))
    report(f"{label}: decode response", lambda: decode_fetch_response(version, response))


def metadata(version: int, count: int) -> None:
    partition = {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": 1,
        "leader_epoch": 3,
        "replica_nodes": (1, 2, 3),
        "isr_nodes": (1, 2, 3),
        "offline_replicas": (),
    }
    topic = {"error_code": 0, "name": "orders", "topic_id": TOPIC_ID, "partitions": [partition] * count}
    broker = {"node_id": 1, "host": "localhost", "port": 9092}
    message = {"brokers": [broker], "cluster_id": "c", "controller_id": 1, "topics": [topic]}
    frame = encode_response(ApiKey.METADATA, version, 1, message)[4:]
    entity_type = kio_type("Metadata", version, "response")
    read, write = entity_reader(entity_type), entity_writer(entity_type)
    label = f"Metadata {version}, {count} partitions"
    position = 5 if version >= 9 else 4
    entity, _ = read(frame, position)
    report(
        f"{label}: encode response",
        lambda: encode_response(ApiKey.METADATA, version, 1, message),
        lambda: write(io.BytesIO(), entity),
    )
    report(
        f"{label}: decode response",
        lambda: decode_response(ApiKey.METADATA, version, frame),
        lambda: read(frame, position),
    )


def main() -> None:
    """Print the table."""
    sys.stdout.write(f"{'':44s}{'ours':>10s}{'kio':>10s}\n")
    header = memoryview(b"".join(encode_produce_request(9, 1, "producer-1", ProduceRequest(None, 1, 1, []))))[4:]
    report("request header", lambda: decode_header(header))
    for version in (7, 9):
        produce(version, 1)
        produce(version, 50)
    for version in (11, 13):
        fetch(version, 1)
        fetch(version, 50)
    metadata(12, 1000)
    heartbeat = memoryview(bytes.fromhex("000c0000000000010002 6d65 0001 67 00000001 0001 6d".replace(" ", "")))
    header_of, position = decode_header(heartbeat)
    report("Heartbeat 0: decode request", lambda: decode_request(header_of, heartbeat, position))


if __name__ == "__main__":
    main()
