"""Compares both ways of the up-conversion, by runs and message by message, with the general conversion."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.base.errors import PeerError
from odradek.compression import Codec
from odradek.records import admission
from odradek.records.admission import prepare
from odradek.records.checks.validate import AppendRules
from odradek.records.conversion import up as conversion
from odradek.records.conversion.up import up, up_plain
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import read_header
from odradek.records.v2.record import Message, iterate_batch

LIMIT = 1 << 24
BASE_MS = 1_700_000_000_000
RULES = AppendRules(max_message_bytes=LIMIT, now_ms=BASE_MS, any_format=True)

Run = tuple[int, int | None, int | None, int, int]
sizes = st.none() | st.integers(0, 200)
runs: st.SearchStrategy[list[Run]] = st.lists(
    st.tuples(
        st.integers(1, 300),
        sizes,
        sizes,
        st.sampled_from([0, 1, -1, 63, 64, 8191, 1 << 20, 1 << 40]),
        st.sampled_from([0, 0, 0, 1, 40, -40, 5000]),
    ),
    min_size=1,
    max_size=6,
)
magics = st.sampled_from([0, 1])
times = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(1 << 62), 1 << 62)


def messages_of(content: list[Run]) -> list[Message]:
    """Runs: count, key and value bytes, timestamp, its step."""
    messages: list[Message] = []
    for count, key_bytes, value_bytes, start, step in content:
        for number in range(count):
            mark = b"%03d" % (len(messages) % 1000)
            key = None if key_bytes is None else (mark * 70)[:key_bytes]
            value = None if value_bytes is None else (mark[::-1] * 70)[:value_bytes]
            messages.append((len(messages), BASE_MS + start + step * number, key, value))
    return messages


def raised_both_ways(written: bytes, *, magic: int) -> bytes | None:
    """Convert as in the interpreter and, message by message, as in compiled code. Both results must be equal."""
    results = []
    for compiled in (False, True):
        with patch.object(conversion, "IS_COMPILED", compiled):
            results.append(up_plain(written, magic=magic))
    assert results[0] == results[1]
    return results[0]


@given(runs, magics)
def test_similar_messages_are_converted_like_single_ones(content: list[Run], magic: int) -> None:
    written = encode_set(messages_of(content), magic=magic)
    assert raised_both_ways(written, magic=magic) == up(written, base_offset=0)


@given(st.integers(8150, 8250), magics)
def test_offset_deltas_grow_wider_inside_a_run(count: int, magic: int) -> None:
    written = encode_set(messages_of([(count, None, 3, 0, 1)]), magic=magic)
    assert raised_both_ways(written, magic=magic) == up(written, base_offset=0)


@given(times, times, st.integers(1, 40))
@example(0, 1 << 61, 1)
@example(-1, (1 << 62) - 1, 40)
@example((1 << 62) - 1, 0, 1)
@example(-(1 << 62) + 1, 5, 1)
@example(-(1 << 63), (1 << 63) - 1, 1)
@example((1 << 63) - 1, -(1 << 63), 40)
def test_times_of_any_distance(first_ms: int, then_ms: int, before: int) -> None:
    """The first messages, which determine the base, may be fewer than those that are converted together."""
    content = [(number, first_ms, None, b"other size") for number in range(before)]
    content += [(before + number, then_ms, None, b"one size") for number in range(60)]
    written = encode_set(content, magic=1)
    whole, quick = up(written, base_offset=0), raised_both_ways(written, magic=1)
    assert quick == whole or (quick is None and max(abs(first_ms), abs(then_ms)) >= 1 << 61)
    assert [record.timestamp for record in iterate_batch(whole, 0, read_header(whole), limit=LIMIT)] == [
        message[1] for message in content
    ]
    kept, headers = admitted(written, quickly=True)
    assert kept == whole
    assert headers[0].max_timestamp == max(first_ms, then_ms)


def admitted(records: bytes, *, quickly: bool, compiled: bool = False) -> tuple[Any, ...]:
    """Return the converted bytes, or the error."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(conversion, "IS_COMPILED", compiled)
        if not quickly:
            monkeypatch.setattr(admission, "_raise_usual", lambda records, rules: None)
        try:
            kept = prepare(memoryview(records), RULES, 0)
        except PeerError as error:
            return type(error), error.code
        return bytes(kept.records), kept.headers


@given(runs, magics, st.integers(0, 1 << 30), st.integers(1, 255), st.sampled_from(["flip", "cut", "crc kept"]))
def test_what_is_damaged_fares_as_in_the_general_way(
    content: list[Run], magic: int, place: int, change: int, kind: str
) -> None:
    """Return a set with a changed byte, optionally with a correct CRC, or with a truncated end."""
    messages = messages_of(content)
    damaged = bytearray(encode_set(messages, magic=magic))
    if kind == "cut":
        del damaged[place % len(damaged) :]
    elif kind == "flip":
        damaged[place % len(damaged)] ^= change
    else:
        # One message in the middle differs in its attributes or its timestamp.
        number = place % len(messages)
        before, after = encode_set(messages[:number], magic=magic), encode_set(messages[number + 1 :], magic=magic)
        offset, _, key, value = messages[number]
        other = encode_set(
            [(offset, change - 200, key, value)], magic=magic, append_time_ms=change if change & 1 else None
        )
        damaged = bytearray(before + other + after)
    expected = admitted(bytes(damaged), quickly=False)
    assert admitted(bytes(damaged), quickly=True) == expected
    assert admitted(bytes(damaged), quickly=True, compiled=True) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_packed_messages_are_left_to_the_general_way(magic: int) -> None:
    packed = encode_set(messages_of([(100, 3, 3, 0, 0)]), magic=magic, codec=Codec.GZIP)
    assert raised_both_ways(packed, magic=magic) is None
