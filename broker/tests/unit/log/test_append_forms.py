"""Appends of every record format to topics with another format or codec: results, stored records, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.base.config import TopicConfig
from odradek.base.errors import InvalidRecordError, UnsupportedForMessageFormatError
from odradek.compression import Codec
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.legacy.writing import encode_set
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import open_log
from odradek_testkit.loop import ManualClock

RELEASES = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
TIME_MS = 5_000


def config(magic: int, **settings: object) -> TopicConfig:
    return replace(TopicConfig(), message_format_version=RELEASES[magic], **settings)  # type: ignore[arg-type]


def produced(magic: int, codec: Codec, count: int = 3) -> memoryview:
    if magic < 2:
        messages = [(number, TIME_MS + number, b"k", b"v%d" % number) for number in range(count)]
        return memoryview(bytearray(encode_set(messages, magic=magic, codec=codec)))
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
    for number in range(count):
        builder.append(b"k", b"v%d" % number, timestamp_ms=TIME_MS + number)
    return memoryview(bytearray(builder.build()))


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("came", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_offsets_continue_over_all_formats(came: int, kept: int, codec: Codec) -> None:
    log = open_log(MemoryFiles(), ManualClock(), config=config(kept))
    log.append_as_leader(produced(2, Codec.NONE, 2), leader_epoch=4)
    info = log.append_as_leader(produced(came, codec), leader_epoch=4, any_format=True)
    assert (info.first_offset, info.last_offset, info.record_count) == (2, 4, 3)
    assert info.max_timestamp == (TIME_MS + 2 if came and kept else -1)
    assert info.log_append_time == -1
    assert log.log_end_offset == 5

    content = log.read(0, max_bytes=1 << 20).load()
    records = [
        record
        for position, header in iterate_entries(content)
        for record in iterate_records(content, position, header, limit=1 << 20)
    ]
    assert [record.offset for record in records] == [0, 1, 2, 3, 4]
    assert [record.value for record in records] == [b"v0", b"v1", b"v0", b"v1", b"v2"]
    assert {header.magic for _, header in iterate_entries(content)} == {kept}


@pytest.mark.parametrize(("kept", "time"), [(0, -1), (1, TIME_MS), (2, TIME_MS)])
def test_log_append_time_is_returned_and_stored(kept: int, time: int) -> None:
    clock = ManualClock()
    log = open_log(MemoryFiles(), clock, config=config(kept, message_timestamp_type="LogAppendTime"))
    info = log.append_as_leader(produced(1, Codec.GZIP), leader_epoch=4, any_format=True)
    assert info.log_append_time == clock.wall_ms()
    assert info.max_timestamp == (clock.wall_ms() if kept else -1)
    content = log.read(0, max_bytes=1 << 20).load()
    times = {
        record.timestamp
        for position, header in iterate_entries(content)
        for record in iterate_records(content, position, header, limit=1 << 20)
    }
    assert times == {clock.wall_ms() if kept else time}


def test_other_settings_hold_for_the_next_append() -> None:
    log = open_log(MemoryFiles(), ManualClock(), config=config(2))
    log.append_as_leader(produced(2, Codec.NONE), leader_epoch=4)
    log.update_config(config(2, compression_type="lz4"))
    log.append_as_leader(produced(2, Codec.NONE), leader_epoch=4)
    content = log.read(0, max_bytes=1 << 20).load()
    assert [header.codec for _, header in iterate_entries(content)] == [Codec.NONE, Codec.LZ4]


def test_what_is_refused_leaves_the_log_as_it_was() -> None:
    log = open_log(MemoryFiles(), ManualClock(), config=config(1, cleanup_policy=("compact",)))
    keyless = BatchBuilder(limit_bytes=1 << 20)
    keyless.append(None, b"v", timestamp_ms=TIME_MS)
    with pytest.raises(InvalidRecordError):
        log.append_as_leader(memoryview(bytearray(keyless.build())), leader_epoch=4)
    idempotent = batch.assemble(
        batch.read_header(produced(2, Codec.NONE))._replace(producer_id=1, producer_epoch=0, base_sequence=0),
        produced(2, Codec.NONE)[batch.HEADER_SIZE :],
    )
    with pytest.raises(UnsupportedForMessageFormatError):
        log.append_as_leader(memoryview(bytearray(idempotent)), leader_epoch=4)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_old_formats_come_from_old_clients_alone() -> None:
    log = open_log(MemoryFiles(), ManualClock(), config=config(2))
    with pytest.raises(InvalidRecordError):
        log.append_as_leader(produced(1, Codec.NONE), leader_epoch=4)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_follower_keeps_old_messages_as_they_are(magic: int) -> None:
    leader = open_log(MemoryFiles(), ManualClock(), config=config(magic))
    for codec in (Codec.NONE, Codec.GZIP):
        leader.append_as_leader(produced(magic, codec), leader_epoch=4, any_format=True)
    content = leader.read(0, max_bytes=1 << 20).load()
    follower = open_log(MemoryFiles(), ManualClock(), config=config(2))
    info = follower.append_as_follower(memoryview(content))
    assert (info.last_offset, follower.log_end_offset) == (5, 6)
    assert follower.read(0, max_bytes=1 << 20).load() == content
