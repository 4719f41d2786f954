"""Opens complete log directories of Apache Kafka 3.9.1; `kafka-3.9.1/README.md` describes their content."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from odradek.base.config import TopicConfig
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.partition_log import PartitionLog
from odradek.records.formats import check_entry, iterate_entries, iterate_records
from odradek.records.v2.batch import ControlType, read_control_type
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.interop.kafka_logs import PlainRecord, plain_record
from odradek_testkit.logs import DIRECTORY, open_log
from odradek_testkit.loop import ManualClock

HERE = Path(__file__).parent / "kafka-3.9.1"
CONFIG = replace(TopicConfig(), index_interval_bytes=200, segment_index_bytes=960)
LIMIT = 1 << 20
INDEXES = (".index", ".timeindex")
OTHER_INDEXES = ("compacted", "__", "v2-none", "v1-gzip", "idempotent")
"""Logs whose indexes may differ: Kafka's cleaner adds index entries per buffer, internal topics have other settings,
and a restarted broker does not know the distance from the last entry."""


def partitions(kind: str) -> list[tuple[str, str]]:
    return [(kind, path.name) for path in sorted((HERE / kind).iterdir()) if path.is_dir()]


EVERY = [*partitions("stopped"), *partitions("killed")]
STOPPED = partitions("stopped")
NORMALLY_INDEXED = [(kind, name) for kind, name in STOPPED if not any(part in name for part in OTHER_INDEXES)]


@cache
def recorded(kind: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((HERE / f"{kind}.json").read_text())
    return found


def checkpointed(kind: str, file: str, name: str) -> int:
    topic, _, partition = name.rpartition("-")
    content = (HERE / kind / file).read_bytes()
    offsets = checkpoints.decode_offsets(content, file) if content else {}
    return offsets.get(TopicPartition(topic, int(partition)), 0)


def opened(
    kind: str, name: str, *, clean: bool | None = None, without: tuple[str, ...] = ()
) -> tuple[PartitionLog, MemoryFiles]:
    """Load the log as a broker at its start, after removing the files that end in one of `without`."""
    files = MemoryFiles()
    files.make_directories(DIRECTORY)
    for file in sorted((HERE / kind / name).iterdir()):
        if not file.name.endswith(without or "/"):
            files.write_atomically(f"{DIRECTORY}/{file.name}", file.read_bytes())
    log = open_log(
        files,
        ManualClock(),
        config=CONFIG,
        clean=kind == "stopped" if clean is None else clean,
        recovery_point=checkpointed(kind, checkpoints.RECOVERY_POINT_FILE, name),
        log_start_offset=checkpointed(kind, checkpoints.LOG_START_FILE, name),
    )
    log.high_watermark = log.log_end_offset
    return log, files


def records_of(log: PartitionLog) -> list[PlainRecord]:
    """Return every record that a consumer gets, with reads of one batch each."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read(offset, max_bytes=1).load()
        if not content:
            break
        for position, header in iterate_entries(content):
            check_entry(content, position, header)
            if not header.is_control:
                found += [
                    plain_record(record.offset, record.timestamp, record.key, record.value, record.headers)
                    for record in iterate_records(content, position, header, limit=LIMIT)
                    if record.offset >= offset
                ]
            following = header.next_offset
        offset = following
    return found


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_the_same_records_are_read(kind: str, name: str) -> None:
    log, _ = opened(kind, name)
    assert records_of(log) == recorded(kind)[name]["records"]


@pytest.mark.parametrize(("kind", "name"), STOPPED)
def test_the_same_records_are_read_without_the_clean_shutdown_file(kind: str, name: str) -> None:
    log, _ = opened(kind, name, clean=False)
    assert records_of(log) == recorded(kind)[name]["records"]


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_the_same_records_are_read_when_every_index_is_lost(kind: str, name: str) -> None:
    log, _ = opened(kind, name, clean=False, without=(*INDEXES, ".txnindex", ".snapshot"))
    assert records_of(log) == recorded(kind)[name]["records"]


@pytest.mark.parametrize(("kind", "name"), STOPPED)
def test_indexes_are_used_unchanged(kind: str, name: str) -> None:
    log, files = opened(kind, name)
    for segment in log.segments[:-1]:
        assert segment.indexes_written, f"{segment} was scanned and its indexes were rebuilt"
        for suffix in INDEXES:
            stored = (HERE / kind / name / Path(segment.path(suffix)).name).read_bytes()
            assert files.read(segment.path(suffix)) == stored


@pytest.mark.parametrize(("kind", "name"), NORMALLY_INDEXED)
def test_indexes_made_anew_are_kafkas_byte_for_byte(kind: str, name: str) -> None:
    log, files = opened(kind, name, clean=False, without=INDEXES)
    log.close()
    for segment in log.segments:
        for suffix in INDEXES:
            stored = (HERE / kind / name / Path(segment.path(suffix)).name).read_bytes()
            assert files.read(segment.path(suffix)) == stored, segment.path(suffix)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_log_start_end_and_epochs(kind: str, name: str) -> None:
    log, _ = opened(kind, name)
    assert log.log_start_offset == checkpointed(kind, checkpoints.LOG_START_FILE, name)
    if kind == "stopped":
        assert log.log_end_offset == checkpointed(kind, checkpoints.HIGH_WATERMARK_FILE, name)
    epochs = HERE / kind / name / checkpoints.LEADER_EPOCH_FILE
    if epochs.exists():
        last_epoch, _ = checkpoints.decode_epochs(epochs.read_bytes(), "x")[-1]
        assert log.latest_epoch == last_epoch


def aborted_in_dump(kind: str, name: str) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of the transaction indexes, as Kafka's tool printed them."""
    printed = (HERE / f"{kind}.dump" / f"{name}.txt").read_text()
    found = re.findall(r"^version: 0 producerId: (\d+) firstOffset: (\d+)", printed, re.MULTILINE)
    return [(int(producer_id), int(first)) for producer_id, first in found]


TRANSACTIONAL = [
    ("stopped", "transactions-0"),
    ("stopped", "compacted-transactions-0"),
    ("killed", "load-transactions-0"),
]


@pytest.mark.parametrize(("kind", "name"), TRANSACTIONAL)
def test_aborted_transactions(kind: str, name: str) -> None:
    log, _ = opened(kind, name)
    found = [tuple(aborted) for aborted in log.aborted_transactions(0, log.log_end_offset)]
    assert found == aborted_in_dump(kind, name)
    assert found


@pytest.mark.parametrize(("kind", "name"), [pair for pair in TRANSACTIONAL if "compacted" not in pair[1]])
def test_aborted_transactions_are_found_again_in_the_log(kind: str, name: str) -> None:
    """Not after compaction, which drops transactions without records."""
    log, _ = opened(kind, name, without=(*INDEXES, ".txnindex", ".snapshot"), clean=False)
    found = [tuple(aborted) for aborted in log.aborted_transactions(0, log.log_end_offset)]
    assert found == aborted_in_dump(kind, name)


@pytest.mark.parametrize(("kind", "name"), TRANSACTIONAL)
def test_committed_records_are_those_of_a_stock_consumer(kind: str, name: str) -> None:
    log, _ = opened(kind, name)
    end = log.log_end_offset if log.first_unstable_offset is None else log.first_unstable_offset
    assert committed_offsets(log, end) == recorded(kind)[name].get("committed", all_offsets(kind, name))


def all_offsets(kind: str, name: str) -> list[int]:
    return [record["offset"] for record in recorded(kind)[name]["records"]]


def committed_offsets(log: PartitionLog, end: int) -> list[int]:
    """Return the records that a consumer keeps: it skips a producer's batches from the first offset of an aborted
    transaction to its marker."""
    waiting = sorted(log.aborted_transactions(0, end), key=lambda aborted: aborted[1])
    aborting: set[int] = set()
    kept: list[int] = []
    content = b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)
    for position, header in iterate_entries(content):
        if header.base_offset >= end:
            break
        while waiting and waiting[0][1] <= header.last_offset:
            aborting.add(waiting.pop(0)[0])
        records = list(iterate_records(content, position, header, limit=LIMIT))
        if header.is_control:
            if records and read_control_type(records[0].key) is ControlType.ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            kept += [record.offset for record in records]
    return kept
