"""Damaged frames of every API cause a decode error or give a value, and use little memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.base.errors import MalformedFrameError, UnsupportedVersionError
from odradek.protocol.apis import API_TABLE, Api, ApiKey
from odradek.protocol.codec import (
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from odradek.protocol.hotpath import decode_fetch, decode_fetch_response, decode_produce, decode_produce_response

Decode = Callable[[memoryview], object]
rows = pytest.mark.parametrize("row", API_TABLE.values(), ids=lambda row: row.name)
HUGE_COUNTS = [
    bytes.fromhex(raw) for raw in ("7fffffff", "80000000", "ffffffff0f", "feffffff07", "ffffff7f", "fffffffe")
]


def decode_body(frame: memoryview) -> None:
    header, position = decode_header(frame)
    decode_request(header, frame, position)


def decode_hot_body(frame: memoryview) -> None:
    header, position = decode_header(frame)
    if header.api_key is ApiKey.PRODUCE:
        decode_produce(header.api_version, frame, position)
    elif header.api_key is ApiKey.FETCH:
        decode_fetch(header.api_version, frame, position)
    else:
        decode_request(header, frame, position)


def decoders(row: Api, direction: str, version: int) -> list[Decode]:
    """Decode a frame with all decoders that may receive it: the general codec, and those of Produce and Fetch."""
    if direction == "request":
        return [decode_body, decode_hot_body]
    found: list[Decode] = [partial(decode_response, row.key, version)]
    if row.key is ApiKey.PRODUCE:
        found.append(partial(decode_produce_response, version))
    elif row.key is ApiKey.FETCH:
        found.append(partial(decode_fetch_response, version))
    return found


def flip_bits(frame: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 2, 8])):
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)


def lie_about_a_length(frame: bytearray, rng: random.Random) -> None:
    lie = rng.choice(HUGE_COUNTS)
    position = rng.randrange(len(frame))
    frame[position : position + len(lie)] = lie


def cut(frame: bytearray, rng: random.Random) -> None:
    del frame[rng.randrange(len(frame)) :]


def insert(frame: bytearray, rng: random.Random) -> None:
    position = rng.randrange(len(frame) + 1)
    frame[position:position] = rng.randbytes(rng.choice([1, 2, 7]))


def remove(frame: bytearray, rng: random.Random) -> None:
    position = rng.randrange(len(frame))
    del frame[position : position + rng.choice([1, 2, 7])]


def duplicate(frame: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(frame))
    frame += frame[start:]


def encoded(row: Api, direction: str, version: int, message: dict[str, Any]) -> bytes:
    if direction == "request":
        return encode_request(row.key, version, 1, "me", message)[4:]
    return encode_response(row.key, version, 1, message)[4:]


MUTATIONS = [flip_bits, lie_about_a_length, cut, insert, remove, duplicate]


def refused(decode: Decode, frame: bytes | bytearray) -> bool:
    try:
        decode(memoryview(frame))
    except (MalformedFrameError, UnsupportedVersionError):
        return True
    return False


@rows
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**64 - 1))
def test_only_decode_errors(judge: Any, row: Api, seed: int) -> None:
    rng = random.Random(seed)
    for direction, version, schema in judge.schemas(row):
        message = judge.message(schema, rng)
        whole = encoded(row, direction, version, message)
        for mutate in MUTATIONS:
            frame = bytearray(whole)
            mutate(frame, rng)
            for decode in decoders(row, direction, version):
                refused(decode, frame)


@rows
def test_every_truncation_is_refused(judge: Any, row: Api) -> None:
    rng = random.Random(1)
    for direction, version, schema in judge.schemas(row):
        message = judge.message(schema, rng)
        whole = encoded(row, direction, version, message)
        lengths = range(len(whole)) if len(whole) < 500 else rng.sample(range(len(whole)), 50)
        for length in lengths:
            for decode in decoders(row, direction, version):
                assert refused(decode, whole[:length]), (direction, version, length)


@rows
def test_a_wrong_count_allocates_no_memory(judge: Any, row: Api) -> None:
    rng = random.Random(2)
    for direction, version, schema in judge.schemas(row):
        message = judge.message(schema, rng)
        whole = encoded(row, direction, version, message)[:2_000]
        tracemalloc.start()
        try:
            for position in range(0, len(whole), max(1, len(whole) // 60)):
                for lie in HUGE_COUNTS:
                    frame = bytearray(whole)
                    frame[position : position + len(lie)] = lie
                    for decode in decoders(row, direction, version):
                        refused(decode, frame)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 4 << 20


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.METADATA, 0, b"\x00\x04\x00\x01" + b"\x00\x00" * 300_000),
        (ApiKey.FETCH, 4, b"\x00" * 17 + b"\x00\x00\x00\x01\x00\x01t\x00\x04\x00\x01" + bytes(16) * 262_145),
        (
            ApiKey.PRODUCE,
            3,
            b"\xff\xff" + b"\x00" * 6 + b"\x00\x00\x00\x01\x00\x01t\x00\x04\x00\x01" + bytes(8) * 262_145,
        ),
    ],
)
def test_a_frame_of_nothing_but_elements_is_refused(api_key: ApiKey, version: int, body: bytes) -> None:
    header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x01\xff\xff"
    for decode in (decode_body, decode_hot_body):
        with pytest.raises(MalformedFrameError, match="more"):
            decode(memoryview(header + body))
