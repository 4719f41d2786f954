"""A process with a broker's logs on a real disk, which a test kills: `python -m odradek_testkit.torture.child`.

It prints a line for each completed append, unbuffered. The records depend only on partition and offset (`record_at`),
so `torture.killing` knows which records must exist. One partition is synced after every record, one is left to the
kernel, and one is synced and compacted continuously.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.disk_threads import DaemonThreads
from odradek.base.system_ports import SystemClock, SystemFiles
from odradek.base.types import TopicPartition
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.cleaning import compact
from odradek_testkit.loop import WALL_START_MS

SYNCED: Final = TopicPartition("synced", 0)
LAZY: Final = TopicPartition("lazy", 0)
COMPACTED: Final = TopicPartition("compacted", 0)

_COMMON: Final = replace(TopicConfig(), segment_bytes=6000, index_interval_bytes=300, file_delete_delay_ms=0)
SETTINGS: Final = {
    SYNCED: replace(_COMMON, flush_messages=1),
    LAZY: _COMMON,
    COMPACTED: replace(_COMMON, flush_messages=1, cleanup_policy=("compact",)),
}
PRODUCER_IDS: Final = {partition: number for number, partition in enumerate(SETTINGS, 1)}
TOPIC_ID: Final = UUID(int=9)
COMPACT_EVERY: Final = 40
_KEYS: Final = 12


class Expected(NamedTuple):
    """Key and value of the record at an offset of a partition."""

    key: bytes
    value: bytes


def record_at(partition: TopicPartition, offset: int) -> Expected:
    """Return the record that is written at an offset."""
    chance = Random(f"{partition}/{offset}")
    return Expected(b"%d" % chance.randrange(_KEYS), b"%d." % offset + chance.randbytes(chance.randrange(200)))


def batch_at(partition: TopicPartition, offset: int, *, sequence: int | None = None) -> memoryview:
    """Return a batch with the record of an offset, which is also its sequence number unless another is given."""
    builder = BatchBuilder(limit_bytes=1 << 20)
    record = record_at(partition, offset)
    builder.append(record.key, record.value, timestamp_ms=WALL_START_MS + offset)
    content = builder.build(
        producer_id=PRODUCER_IDS[partition], producer_epoch=0, base_sequence=offset if sequence is None else sequence
    )
    return memoryview(bytearray(content))


def config_for(directory: str) -> BrokerConfig:
    """Return the settings of the broker."""
    return replace(BrokerConfig(), log_dirs=(f"{directory}/a", f"{directory}/b"), broker_id=1)


async def open_logs(directory: str) -> tuple[LogManager, dict[TopicPartition, PartitionLog]]:
    """Start the logs of a directory, which recovers them."""
    logs = LogManager(SystemFiles(), SystemClock(), config_for(directory), disk_threads=DaemonThreads)
    await logs.start("torture", 1)
    return logs, {
        partition: logs.get_or_create(partition, TOPIC_ID, settings, is_new=True)
        for partition, settings in SETTINGS.items()
    }


async def _work(directory: str) -> None:
    logs, partitions = await open_logs(directory)
    chance, appended = Random(), 0
    while True:
        partition = chance.choice(list(SETTINGS))
        log = partitions[partition]
        offset = log.append_as_leader(batch_at(partition, log.log_end_offset), leader_epoch=0).first_offset
        _tell(f"{partition.topic} {offset}")
        appended += 1
        if appended % 7 == 0:
            # Let flushes and checkpoints run in threads, so that a kill often interrupts them.
            await asyncio.sleep(0)
        if appended % COMPACT_EVERY == 0:
            compacted = partitions[COMPACTED]
            await logs.write_checkpoints()
            compacted.high_watermark = compacted.log_end_offset
            compact(SystemFiles(), compacted, SystemClock())


def _tell(line: str) -> None:
    os.write(sys.stdout.fileno(), line.encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
