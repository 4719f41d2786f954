"""Damages every kind of file after a crash: flipped bits inside, zeros or garbage after the end.

The table has the expected result for each. Every record that is read was written, or its batch fails its CRC, which
clients check. The format has two limits: the CRC of a batch does not cover its offset and leader epoch, and entries of
sealed indexes have no CRC. Only `odradek log verify` reports a flipped bit there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError, CorruptMessageError, InconsistentTopicIdError, InvalidRecordError
from odradek.base.types import TopicPartition
from odradek.cli.logs.findings import Severity
from odradek.cli.logs.verify import verify
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import check_entry, iterate_entries, iterate_records
from odradek.records.v2.batch import ControlType
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.inline_ports import inline_threads
from odradek_testkit.logs import batch, marker, small_segments
from odradek_testkit.loop import VirtualClock, run_virtual

CONFIG = replace(BrokerConfig(), log_dirs=("/disk",), broker_id=1)
PARTITION = TopicPartition("t", 0)
SETTINGS = small_segments(segment_bytes=400)
TOPIC_ID = UUID(int=5)
LOG = "/disk/t-0"
POSITIONS = 12


class Outcome(Enum):
    """The result of a start with a damaged file."""

    WHOLE = "every record exists and is found"
    CUT = "the log ends before the first wrong batch"
    AS_IT_IS = "the bytes are served unchanged and fail their CRC"
    FOUND_OR_TOLD = "found records are correct; other lookups raise an error"
    TOLD = "an error message reports the damage, or nothing is damaged"


def flipped(content: bytes, chance: Random) -> bytes:
    """Flip one bit."""
    if not content:
        return b"\x01"
    outside = (*range(8), *range(12, 16)) if content[16:17] == b"\x02" else ()
    position = chance.choice([each for each in range(len(content)) if each not in outside])
    return content[:position] + bytes((content[position] ^ 1 << chance.randrange(8),)) + content[position + 1 :]


def with_zeros(content: bytes, chance: Random) -> bytes:
    """Extend the file with zeros."""
    return content + bytes(chance.randrange(1, 200))


def with_garbage(content: bytes, chance: Random) -> bytes:
    """Extend the file with garbage."""
    return content + chance.randbytes(chance.randrange(1, 200))


KINDS = {
    "sealed .log": (f"{LOG}/00000000000000000000.log", Outcome.AS_IT_IS),
    "active .log": (None, Outcome.CUT),
    ".index": (f"{LOG}/00000000000000000000.index", Outcome.WHOLE),
    ".timeindex": (f"{LOG}/00000000000000000000.timeindex", Outcome.WHOLE),
    ".txnindex": (f"{LOG}/00000000000000000000.txnindex", Outcome.WHOLE),
    ".snapshot": (None, Outcome.WHOLE),
    "leader-epoch-checkpoint": (f"{LOG}/leader-epoch-checkpoint", Outcome.WHOLE),
    "partition.metadata": (f"{LOG}/partition.metadata", Outcome.WHOLE),
    "recovery-point": ("/disk/recovery-point-offset-checkpoint", Outcome.WHOLE),
    "log-start": ("/disk/log-start-offset-checkpoint", Outcome.WHOLE),
    "replication-offset": ("/disk/replication-offset-checkpoint", Outcome.WHOLE),
    "cleaner-offset": ("/disk/cleaner-offset-checkpoint", Outcome.WHOLE),
    "meta.properties": ("/disk/meta.properties", Outcome.TOLD),
}


# Only the size and the last entry of a sealed index can be checked, as in Kafka.
FLIPPED_INDEXES = frozenset({".index", ".timeindex", ".txnindex"})


def written() -> MemoryFiles:
    """Return a disk after a kill: some segments with an aborted transaction, the last one not flushed."""
    files = MemoryFiles()

    async def main() -> None:
        logs = LogManager(files, VirtualClock(), CONFIG, disk_threads=inline_threads)
        await logs.start("cluster", 1)
        log = logs.get_or_create(PARTITION, TOPIC_ID, SETTINGS, is_new=True)
        log.append_as_leader(
            batch(b"aborted", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True), leader_epoch=0
        )
        ended = marker(ControlType.ABORT, producer_id=7)
        log.append_as_leader(ended, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        for number in range(12):
            records = batch(
                b"%d" % number,
                timestamp_ms=1_700_000_001_000 + number,
                producer_id=8,
                producer_epoch=0,
                base_sequence=number,
            )
            log.append_as_leader(records, leader_epoch=number // 5)
        log.flush()
        log.high_watermark = log.log_end_offset
        await logs.write_checkpoints()
        await logs.checkpoint_high_watermarks({PARTITION: log.log_end_offset})
        files.write_atomically("/disk/cleaner-offset-checkpoint", b"0\n1\nt 0 0\n")
        for number in range(12, 15):
            log.append_as_leader(batch(b"%d" % number, timestamp_ms=1_700_000_001_000 + number), leader_epoch=3)
        await logs.close(clean=False)

    run_virtual(main())
    files.kill()
    return files


WRITTEN = written()


def named(files: MemoryFiles, kind: str) -> str:
    path = KINDS[kind][0]
    if path is not None:
        return path
    names = files.list(LOG)
    return f"{LOG}/{[name for name in names if name.endswith(kind.split()[-1])][-1]}"


def opened(files: MemoryFiles, look: Callable[[PartitionLog], None]) -> None:
    async def main() -> None:
        logs = LogManager(files, VirtualClock(), CONFIG, disk_threads=inline_threads)
        try:
            await logs.start("cluster", 1)
            assert not logs.offline_directories
            log = logs.get_or_create(PARTITION, TOPIC_ID, SETTINGS)
            look(log)
            logs.read_high_watermarks()
        finally:
            await logs.close(clean=False)

    run_virtual(main())
    files.kill()


def records(log: PartitionLog) -> tuple[dict[int, bytes], int]:
    """Return the values of batches with a correct CRC and the number of other batches, read from each offset."""
    found: dict[int, bytes] = {}
    wrong = 0
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            content = log.read(offset, max_bytes=1).load()
            position, header = next(iter(iterate_entries(content)))
            check_entry(content, position, header)
            for record in iterate_records(content, position, header, limit=1 << 20):
                found[record.offset] = record.value or b""
        except (CorruptMessageError, InvalidRecordError, StopIteration):
            wrong += 1
    return found, wrong


def originals() -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    opened(WRITTEN.fork(), lambda log: found.update(records(log)[0]))
    return found


ORIGINAL = originals()


@pytest.mark.parametrize("damage", [flipped, with_zeros, with_garbage])
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_never_gives_wrong_records(kind: str, damage: Callable[[bytes, Random], bytes]) -> None:
    path, outcome = named(WRITTEN, kind), KINDS[kind][1]
    if damage is flipped and kind in FLIPPED_INDEXES:
        outcome = Outcome.FOUND_OR_TOLD
    assert WRITTEN.exists(path)
    for number in range(POSITIONS):
        files = WRITTEN.fork()
        file = files.open(path)
        content = damage(files.read(path), Random(f"{kind}/{number}"))
        file.pwritev((content,), 0)
        file.close()

        def look(log: PartitionLog) -> None:
            found, wrong = records(log)
            assert found.items() <= ORIGINAL.items()
            if outcome is Outcome.WHOLE:
                assert found == ORIGINAL
                assert log.aborted_transactions(0, log.log_end_offset) == ((7, 0),)
                assert log.offset_for_timestamp(1_700_000_001_005).offset == 7  # type: ignore[union-attr]
                assert log.active_producers()[-1].last_sequence == 11
            elif outcome is Outcome.CUT:
                assert not wrong
                assert list(found) == list(range(len(found)))
            elif outcome is Outcome.AS_IT_IS:
                assert found.keys() | set(range(5)) >= ORIGINAL.keys()

        try:
            opened(files, look)
        except ConfigError as error:
            assert outcome is Outcome.TOLD
            assert path in str(error)
        except InconsistentTopicIdError:
            assert kind == "partition.metadata"


def test_verify_reports_a_flipped_bit(tmp_path: Path) -> None:
    """Damage in a sealed, flushed segment, which no start checks."""
    for path, content in WRITTEN.content(LOG).items():
        (tmp_path / "t-0").mkdir(exist_ok=True)
        assert content is not None
        if path == f"{LOG}/00000000000000000000.log":
            content = content[:-1] + bytes((content[-1] ^ 4,))
        (tmp_path / "t-0" / path.rpartition("/")[2]).write_bytes(content)
    report = verify([tmp_path], deep=False, jobs=1, progress=lambda *_: None)  # type: ignore[arg-type]
    assert any(
        finding.severity is Severity.ERROR and finding.path.endswith("00000000000000000000.log")
        for partition in report.partitions
        for finding in partition.findings
    )
