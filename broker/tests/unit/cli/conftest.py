"""A log directory on the real disk, as after a clean shutdown of a broker, for the tests of the offline tools."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from odradek.base.system_ports import SystemFiles
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.checkpoints import MetaProperties
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek_testkit.logs import open_log, small_segments
from odradek_testkit.loop import ManualClock

START_MS = 1_700_000_000_000
PARTITION = TopicPartition("orders", 0)


def record_batch(number: int, *, producer_id: int = -1, sequence: int = -1) -> memoryview:
    builder = BatchBuilder(limit_bytes=1 << 20)
    for place in range(2):
        key, value = b"key %d" % ((number + place) % 5), b"value %d.%d" % (number, place)
        builder.append(key, value, timestamp_ms=START_MS + 1000 * number + place, headers=[("source", b"test")])
    is_transactional = producer_id >= 0
    content = builder.build(
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return memoryview(bytearray(content))


def marker(kind: ControlType, number: int) -> memoryview:
    content = marker_batch(
        kind, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=START_MS + 1000 * number
    )
    return memoryview(bytearray(content))


def write_partition(directory: Path) -> int:
    """Write a log of several segments, with two leader epochs and an aborted and a committed transaction. Return its
    end offset."""
    files = SystemFiles()
    log = open_log(files, ManualClock(), config=small_segments(segment_bytes=500), directory=str(directory))
    for number in range(6):
        log.append_as_leader(record_batch(number), leader_epoch=3)
    for turn, kind in enumerate((ControlType.ABORT, ControlType.COMMIT)):
        log.append_as_leader(record_batch(6 + 2 * turn, producer_id=7, sequence=2 * turn), leader_epoch=5)
        ending = marker(kind, 7 + 2 * turn)
        log.append_as_leader(ending, leader_epoch=5, origin=AppendOrigin.COORDINATOR)
    for number in range(10, 14):
        log.append_as_leader(record_batch(number), leader_epoch=5)
    end = log.log_end_offset
    log.close()
    topic_id = checkpoints.encode_partition_metadata(UUID(int=77))
    files.write_atomically(f"{directory}/{checkpoints.PARTITION_METADATA_FILE}", topic_id)
    return end


@pytest.fixture(scope="session")
def sound_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory, which is created once. Tests get copies."""
    root = tmp_path_factory.mktemp("sound") / "data"
    end = write_partition(root / str(PARTITION))
    files = SystemFiles()
    owner = MetaProperties(cluster_id="test", broker_id=1)
    files.write_atomically(f"{root}/{checkpoints.META_PROPERTIES_FILE}", owner.encode())
    files.write_atomically(f"{root}/{checkpoints.CLEAN_SHUTDOWN_FILE}", checkpoints.clean_shutdown_mark())
    for name in (checkpoints.RECOVERY_POINT_FILE, checkpoints.HIGH_WATERMARK_FILE):
        files.write_atomically(f"{root}/{name}", checkpoints.encode_offsets({PARTITION: end}))
    files.write_atomically(f"{root}/{checkpoints.LOG_START_FILE}", checkpoints.encode_offsets({}))
    return root


@pytest.fixture
def log_root(sound_root: Path, tmp_path: Path) -> Path:
    """A copy of the directory, with one partition `orders-0`, which a test may damage."""
    return Path(shutil.copytree(sound_root, tmp_path / "data"))


@pytest.fixture
def partition(log_root: Path) -> Path:
    """The partition's directory."""
    return log_root / str(PARTITION)
