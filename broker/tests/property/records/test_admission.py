"""Conversion to any form of a topic keeps the records; damaged record sets are refused or harmless."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import PeerError
from odradek.compression import Codec
from odradek.log.producers.stamping import stamp_offsets, stamp_time
from odradek.records import admission
from odradek.records.admission import prepare
from odradek.records.checks.structure import _inspect, _is_plain
from odradek.records.checks.survey import NOTHING, survey
from odradek.records.checks.validate import AppendRules
from odradek.records.formats import check_entry, first_offset, iterate_entries, iterate_records
from odradek.records.legacy.writing import encode_set
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, TimestampType
from odradek.records.v2.record import Record, decode_batch
from odradek.records.v2.record_walk import Row, walk
from odradek_testkit.fuzz_targets import refit_crc

NOW_MS = 1_700_000_000_000
LIMIT = 1 << 20
no_deadline = settings(deadline=None)

contents = st.none() | st.binary(max_size=80) | st.integers(0, 3000).map(bytes)
timestamps = st.just(-1) | st.integers(0, 2 * NOW_MS)
rows = st.lists(st.tuples(timestamps, contents, contents), min_size=1, max_size=12)
magics = st.integers(0, 2)
old_codecs = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])


def produced(magic: int, codec: Codec, content: list, *, headers: bool = True) -> bytes:
    """A client's record set; record headers, if the format has them, only on request."""
    if magic < 2:
        return encode_set([(number, *row) for number, row in enumerate(content)], magic=magic, codec=codec)
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 30)
    for timestamp_ms, key, value in content:
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=[("name", key)] if headers else ())
    return builder.build()


def records_of(raw: bytes | memoryview) -> list[Record]:
    """Return all records, after checking every CRC and that the entries fill the set."""
    records = []
    end = 0
    for position, header in iterate_entries(raw):
        check_entry(raw, position, header)
        entry = list(iterate_records(raw, position, header, limit=LIMIT))
        assert entry[-1].offset == header.last_offset
        assert entry[0].offset == first_offset(raw, position, header, limit=LIMIT)
        if header.magic:
            assert header.max_timestamp == max(-1, *(record.timestamp for record in entry), -1)
        records += entry
        end = position + header.size
    assert end == len(raw)
    return records


@no_deadline
@given(rows, magics, magics, old_codecs, st.none() | old_codecs, st.integers(0, 2**40), st.booleans())
def test_every_form_keeps_the_records(
    content: list, source: int, target: int, codec: Codec, asked: Codec | None, offset: int, by_broker: bool
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME
    rules = AppendRules(1 << 20, NOW_MS, any_format=True, timestamp_type=kind, magic=target, codec=asked)
    raw = produced(source, codec, content, headers=target == 2)
    prepared = prepare(memoryview(raw), rules, offset)
    kept, headers = memoryview(bytearray(prepared.records)), prepared.headers
    if by_broker:
        headers = stamp_time(kept, headers, NOW_MS)
    end, newest = stamp_offsets(kept, headers, offset, 5)
    records = records_of(kept)

    assert [(record.key, record.value) for record in records] == [(key, value) for _, key, value in content]
    assert [record.offset for record in records] == list(range(offset, end))
    assert {header.magic for _, header in iterate_entries(kept)} == {target}
    assert {header.codec for _, header in iterate_entries(kept)} == {codec if asked is None else asked}
    if by_broker:
        expected = [NOW_MS if target else -1] * len(content)
    else:
        expected = [timestamp_ms if source and target else -1 for timestamp_ms, _, _ in content]
    assert [record.timestamp for record in records] == expected
    assert newest == max(expected)
    if source == target == 2:
        assert [record.headers for record in records] == [(("name", key),) for _, key, _ in content]


@st.composite
def mutated_sets(draw: st.DrawFn) -> bytes:
    """A record set with changed, removed or added bytes, with correct or wrong outer CRCs."""
    magic = draw(magics)
    raw = bytearray(produced(magic, draw(old_codecs if magic < 2 else st.sampled_from(Codec)), draw(rows)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, min(len(raw), 200) - 1))
        raw[at] = draw(st.integers(0, 255) | st.sampled_from([raw[at] ^ 1, 0, 0xFF, 0x7F, 0x80]))
    if draw(st.booleans()):
        raw = raw[: draw(st.integers(0, len(raw)))] + draw(st.binary(max_size=30))
    if draw(st.booleans()):
        refit_crc(raw, magic)
    return bytes(raw)


@settings(max_examples=300, deadline=None)
@given(mutated_sets(), magics, st.none() | st.sampled_from(Codec), st.booleans(), st.booleans())
def test_a_mutated_set_is_refused_or_harmless(
    raw: bytes, target: int, asked: Codec | None, compacted: bool, any_format: bool
) -> None:
    rules = AppendRules(
        1 << 20,
        NOW_MS,
        any_format=any_format,
        timestamp_before_max_ms=NOW_MS,
        timestamp_after_max_ms=NOW_MS,
        compacted=compacted,
        magic=target,
        codec=asked,
        decompressed_limit_bytes=LIMIT,
    )
    try:
        prepared = prepare(memoryview(raw), rules, 10)
    except PeerError:
        return
    kept = memoryview(bytearray(prepared.records))
    end, _ = stamp_offsets(kept, prepared.headers, 10, 5)
    records = records_of(kept)
    assert [record.offset for record in records] == list(range(10, end))
    assert not (compacted and any(record.key is None for record in records))


@settings(max_examples=200, deadline=None)
@given(rows, st.data())
def test_the_look_at_columns_is_sure_of_sound_records_alone(content: list, data: st.DataObject) -> None:
    raw = produced(2, Codec.NONE, content)
    header = batch.read_header(raw)
    section = bytearray(raw[batch.HEADER_SIZE :])
    assert survey(section, len(content)).number == len(content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(section), 200) - 1))
        section[at] = data.draw(st.integers(0, 255) | st.sampled_from([section[at] ^ 1, 0x80]))
    facts = survey(section, len(content))
    if facts.number < len(content):
        return
    mutated = batch.assemble(header, bytes(section))
    records = decode_batch(mutated, 0, batch.read_header(mutated), limit=LIMIT)
    assert [record.offset for record in records] == list(range(len(content)))
    deltas = [record.timestamp - header.base_timestamp for record in records]
    assert (facts.oldest_delta_ms, facts.newest_delta_ms) == (min(deltas), max(deltas))
    assert facts.all_keyed == all(record.key is not None for record in records)


@st.composite
def alike(draw: st.DrawFn) -> list:
    """Runs of similar records, as most producers send them."""
    content = []
    for _ in range(draw(st.integers(1, 3))):
        key, value = draw(st.none() | st.binary(max_size=3)), draw(st.none() | st.integers(0, 70).map(bytes))
        begin, step = draw(st.integers(0, 200)), draw(st.sampled_from([0, 1, 1, 3, -1]))
        content += [(begin + step * number, key, value) for number in range(draw(st.integers(1, 150)))]
    return content


@settings(max_examples=200, deadline=None)
@given(alike(), st.data())
def test_both_checks_agree_on_similar_records(content: list, data: st.DataObject) -> None:
    raw = produced(2, Codec.NONE, content, headers=False)
    count, section = len(content), bytearray(raw[batch.HEADER_SIZE :])
    assert survey(section, count).number == count
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(section) - 1))
        section[at] = data.draw(st.sampled_from([0, 1, 2, 0x80, section[at] ^ 1, section[at] ^ 2]))
    facts = survey(section, count)
    found: list[Row] = []
    # After damaged bytes the walk ends; up to there it has to confirm what the survey found.
    walk(bytes(section), 0, count, rows=found)
    verified = found[: facts.number]
    assert len(verified) == facts.number
    assert [row[1] for row in verified] == list(range(facts.number))
    assert not facts.all_keyed or all(row[3] >= 0 for row in verified)
    assert facts.end == (verified[-1][-1] if verified else 0)
    assert facts.number < count or facts.end == len(section)
    deltas = [row[0] for row in verified]
    if deltas:
        assert (facts.oldest_delta_ms, facts.newest_delta_ms) == (min(deltas), max(deltas))


@settings(max_examples=300, deadline=None)
@given(contents, contents, st.booleans(), st.data())
def test_a_record_that_passes_the_quick_check_is_valid(
    key: bytes | None, value: bytes | None, headers: bool, data: st.DataObject
) -> None:
    raw = produced(2, Codec.NONE, [(NOW_MS, key, value)], headers=headers)
    header, section = batch.read_header(raw), bytearray(raw[batch.HEADER_SIZE :])
    if not headers and len(key or b"") < 64:
        assert _is_plain(memoryview(section))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, min(len(section), 12) - 1) | st.just(len(section) - 1))
        section[at] = data.draw(st.integers(0, 255) | st.sampled_from([section[at] ^ 1, section[at] ^ 2, 0x80]))
    del section[len(section) - data.draw(st.integers(0, 2)) :]
    if _is_plain(memoryview(section)):
        assert _inspect(bytes(section), header, AppendRules(LIMIT, NOW_MS), NOTHING) == NOW_MS


@no_deadline
@given(st.binary(max_size=300), st.integers(1, 40))
def test_the_look_at_columns_of_noise(noise: bytes, count: int) -> None:
    if survey(noise, count).number < count:
        return
    header = batch.read_header(produced(2, Codec.NONE, [(0, None, None)]))
    header = header._replace(record_count=count, last_offset_delta=count - 1, base_timestamp=0)
    made = batch.assemble(header, noise)
    assert len(decode_batch(made, 0, batch.read_header(made), limit=LIMIT)) == count


def outcome(raw: bytes, rules: AppendRules) -> tuple[object, ...]:
    """Return the result or the error of `prepare`."""
    try:
        prepared = prepare(memoryview(raw), rules, 5)
    except PeerError as error:
        return type(error), str(error), getattr(error, "record_errors", ())
    return bytes(prepared.records), prepared.headers


@no_deadline
@given(
    rows,
    st.booleans(),
    st.none() | st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=8)),
    st.booleans(),
    st.sampled_from([{}, {"compacted": True}, {"timestamp_before_max_ms": NOW_MS}, {"validate_records": False}]),
    st.sampled_from(TimestampType),
    st.sampled_from([-1, 0, 7]),
)
def test_the_fast_check_agrees_with_the_full_check(
    content: list,
    headers: bool,
    damage: tuple[int, bytes] | None,
    mended: bool,
    changes: dict[str, Any],
    kind: TimestampType,
    producer_id: int,
) -> None:
    """The fast check for typical batches has the same result as the full check, for valid and invalid batches."""
    builder = BatchBuilder(limit_bytes=1 << 30)
    for timestamp_ms, key, value in content:
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=[("name", key)] if headers else ())
    raw = bytearray(builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=producer_id))
    if damage is not None:
        at, change = damage
        raw[at : at + len(change)] = change[: len(raw[at : at + len(change)])]
    if mended:
        raw[17:21] = crc32c(raw[21:]).to_bytes(4, "big")
    rules = AppendRules(1 << 12, NOW_MS, timestamp_type=kind, **changes)
    result = outcome(bytes(raw), rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "usual_batch", lambda *_: None)
        assert outcome(bytes(raw), rules) == result
