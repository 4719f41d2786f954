"""Kills a child process that appends to logs on a real disk, and checks that all acknowledged records exist.

The child is killed after a random number of acknowledgements, never at a time. SIGKILL ends the process but not the
kernel, so even records that were not synced must exist; `torture.runs` tests the loss of unsynced data. Raises
`TornLogError`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass, field
from random import Random

from odradek.base.errors import OutOfOrderSequenceError
from odradek.base.types import TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek_testkit.torture.child import COMPACTED, SETTINGS, batch_at, open_logs, record_at
from odradek_testkit.torture.model import TornLogError, read_all

MOST_ACKNOWLEDGED = 300


@dataclass(slots=True)
class KillLoop:
    """One directory over many kills and restarts of the child."""

    directory: str
    chance: Random
    kills: int = 0
    acknowledged: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(SETTINGS, 0))
    """Offset after the last record that a child acknowledged."""

    def once(self) -> None:
        """Start a child, kill it, and check its logs. Raises `TornLogError`."""
        self._live(self.chance.randrange(1, MOST_ACKNOWLEDGED))
        self.kills += 1
        asyncio.run(self._verify())

    def _live(self, count: int) -> None:
        partitions = {partition.topic: partition for partition in SETTINGS}
        command = [sys.executable, "-m", "odradek_testkit.torture.child", self.directory]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            for number, line in enumerate(child.stdout, 1):
                if number == count:
                    child.kill()
                if line.endswith(b"\n"):
                    topic, offset = line.decode().split()
                    self._told(partitions[topic], int(offset))
            errors = child.stderr.read().decode()
        if child.returncode != -9:
            raise TornLogError(f"the child ended before it was killed: {errors}")

    def _told(self, partition: TopicPartition, offset: int) -> None:
        if offset != self.acknowledged[partition] and offset < self.acknowledged[partition]:
            raise TornLogError(f"{partition} got offset {offset} twice")
        self.acknowledged[partition] = offset + 1

    async def _verify(self) -> None:
        logs, partitions = await open_logs(self.directory)
        try:
            if logs.offline_directories:
                raise TornLogError(f"offline: {logs.directories()}")
            for partition, log in partitions.items():
                self._check(partition, log)
                self._check_producer(partition, log)
        finally:
            await logs.close(clean=False)

    def _check(self, partition: TopicPartition, log: PartitionLog) -> None:
        rows = read_all(log).rows
        if log.log_end_offset < self.acknowledged[partition]:
            raise TornLogError(f"{log} has lost records that were acknowledged, up to {self.acknowledged[partition]}")
        for offset, row in rows.items():
            if (row.key, row.value) != record_at(partition, offset):
                raise TornLogError(f"{log} has {row} instead of {record_at(partition, offset)}")
        expected = set(range(log.log_end_offset))
        if partition == COMPACTED:
            expected = set({record_at(partition, offset).key: offset for offset in sorted(expected)}.values())
        if not expected <= rows.keys():
            raise TornLogError(f"{log} lacks {sorted(expected - rows.keys())}")

    def _check_producer(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Check that a repeated batch is recognized, and that a gap in the sequence is refused."""
        last = log.log_end_offset - 1
        if last < 0:
            return
        again = log.append_as_leader(batch_at(partition, last), leader_epoch=0)
        if not again.duplicate or again.first_offset != last:
            raise TornLogError(f"the repeat of the batch at {last} was appended to {log} as {again}")
        try:
            log.append_as_leader(batch_at(partition, last, sequence=last + 5), leader_epoch=0)
        except OutOfOrderSequenceError:
            return
        raise TornLogError(f"{log} accepted a batch with a gap in the sequence")
