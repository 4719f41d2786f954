"""Opens a log that Apache Kafka 3.9.1 wrote.

Origin: one broker in ZooKeeper mode; topic `golden`, one partition, segment.bytes=600, index.interval.bytes=100,
segment.index.bytes=1000; librdkafka 2.15 wrote 20 idempotent records one by one, then one transaction that was
committed and one that was aborted. `killed` was copied while the broker ran (so the active indexes have their
preallocated size), `stopped` after a clean shutdown, `directory` has the other files of the log directory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.checkpoints import MetaProperties
from odradek.log.partition_log import PartitionLog
from odradek.log.producers.producer_snapshot import unpack_snapshot
from odradek.log.values import TimestampOffset
from odradek.records.v2.record import decode_batch
from odradek_testkit.batches import iterate
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import DIRECTORY, open_log, small_segments
from odradek_testkit.loop import ManualClock

HERE = Path(__file__).parent
CONFIG = small_segments(segment_bytes=600, index_interval_bytes=100, segment_index_bytes=1000)
SEALED = (0, 7, 14)


def opened(kind: str, *, clean: bool) -> tuple[PartitionLog, MemoryFiles]:
    files = MemoryFiles()
    files.make_directories(DIRECTORY)
    for file in sorted((HERE / f"kafka_3_9_1_{kind}").iterdir()):
        files.write_atomically(f"{DIRECTORY}/{file.name}", file.read_bytes())
    log = open_log(files, ManualClock(), config=CONFIG, clean=clean)
    log.high_watermark = log.log_end_offset
    return log, files


def stored(kind: str, name: str) -> bytes:
    return (HERE / f"kafka_3_9_1_{kind}" / name).read_bytes()


@pytest.mark.parametrize(("kind", "clean"), [("stopped", True), ("stopped", False), ("killed", False)])
def test_every_record_is_read(kind: str, clean: bool) -> None:
    log, _ = opened(kind, clean=clean)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 24, 0)
    assert [segment.base_offset for segment in log.segments] == [0, 7, 14, 21]
    found = {}
    for offset in range(24):
        content = log.read(offset, max_bytes=1).load()
        for position, header in iterate(content):
            for record in decode_batch(content, position, header, limit=1 << 20):
                found[record.offset] = (record.key, record.value, record.timestamp)
    assert {offset: found[offset] for offset in range(20)} == {
        number: (b"key %d" % number, b"value %d" % number, 1_700_000_000_000 + 1000 * number) for number in range(20)
    }
    assert (found[20][1], found[22][1]) == (b"tx 0", b"tx 1")


@pytest.mark.parametrize(("kind", "clean"), [("stopped", True), ("stopped", False), ("killed", False)])
def test_producers_and_transactions_are_known(kind: str, clean: bool) -> None:
    log, _ = opened(kind, clean=clean)
    idempotent, transactional = log.active_producers()
    assert (idempotent.last_sequence, idempotent.last_timestamp) == (19, 1_700_000_019_000)
    assert (transactional.coordinator_epoch, transactional.transaction_first_offset) == (0, -1)
    assert log.first_unstable_offset is None


@pytest.mark.parametrize(("kind", "clean"), [("stopped", True), ("killed", False)])
@pytest.mark.parametrize("number", [0, 3, 6, 7, 19])
def test_records_are_found_by_time(kind: str, clean: bool, number: int) -> None:
    log, _ = opened(kind, clean=clean)
    timestamp = 1_700_000_000_000 + 1000 * number
    assert log.offset_for_timestamp(timestamp) == TimestampOffset(timestamp, number, 0)


def test_indexes_made_anew_are_kafkas_byte_for_byte() -> None:
    log, files = opened("killed", clean=False)
    log.close()
    for base in SEALED:
        for suffix in (".index", ".timeindex"):
            name = f"{base:020d}{suffix}"
            assert files.read(f"{DIRECTORY}/{name}") == stored("killed", name), name
    for suffix in (".index", ".timeindex"):
        name = f"{21:020d}{suffix}"
        assert files.read(f"{DIRECTORY}/{name}") == stored("stopped", name), name


def test_small_files_are_kafkas_byte_for_byte() -> None:
    epochs = stored("stopped", checkpoints.LEADER_EPOCH_FILE)
    assert checkpoints.encode_epochs(checkpoints.decode_epochs(epochs, "x")) == epochs
    metadata = stored("stopped", checkpoints.PARTITION_METADATA_FILE)
    assert checkpoints.encode_partition_metadata(checkpoints.decode_partition_metadata(metadata, "x")) == metadata


def test_the_snapshot_has_the_content_of_kafkas() -> None:
    """The bytes are not equal, because Kafka writes producers in the order of a hash map and stores no earlier
    batches. For a producer whose last batch was a marker both store the data batch before it."""
    log, files = opened("killed", clean=False)
    log.close()
    ours = files.read(f"{DIRECTORY}/{24:020d}.snapshot")
    theirs = stored("stopped", f"{24:020d}.snapshot")

    entries, earlier = unpack_snapshot(ours)
    assert (sorted(entries), {}) == (sorted(unpack_snapshot(theirs)[0]), unpack_snapshot(theirs)[1])
    assert earlier


def test_the_directorys_files() -> None:
    names = (checkpoints.RECOVERY_POINT_FILE, checkpoints.HIGH_WATERMARK_FILE)
    for name in names:
        content = stored("directory", name)
        offsets = checkpoints.decode_offsets(content, name)
        assert offsets == {TopicPartition("golden", 0): 24, TopicPartition("__transaction_state", 0): 7}
        assert sorted(checkpoints.encode_offsets(offsets).splitlines()) == sorted(content.splitlines())
    assert checkpoints.decode_offsets(stored("directory", checkpoints.LOG_START_FILE), "x") == {}
    assert stored("directory", checkpoints.CLEAN_SHUTDOWN_FILE) == checkpoints.clean_shutdown_mark()
    meta = stored("directory", checkpoints.META_PROPERTIES_FILE)
    MetaProperties.check(meta, "x", MetaProperties(cluster_id="9kKREZ0fThKWwJ3IVjWM1g", broker_id=0))
    with pytest.raises(ConfigError):
        MetaProperties.check(meta, "x", MetaProperties(cluster_id="9kKREZ0fThKWwJ3IVjWM1g", broker_id=1))
