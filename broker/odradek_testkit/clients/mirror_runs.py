"""Processes of `odradek mirror`, a load on the source, and the check that every record arrived once and in order."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer

_END_SECONDS: Final = 60.0
_READ_SECONDS: Final = 200.0
_EXIT_SECONDS: Final = 60.0
_ABORTED: Final = b"aborted"


class MirrorRun:
    """One process of a mirror. `kill` and `stop` end it; both are idempotent."""

    def __init__(self, directory: Path, document: Mapping[str, Any], *, instance: str | None = None) -> None:
        """`document` is the configuration. The log is in `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "mirror.yaml"
        path.write_text(yaml.safe_dump(dict(document)), encoding="utf-8")
        self._log_path: Final = directory / f"mirror-{instance or 'random'}.log"
        command = [sys.executable, "-m", "odradek.cli.main", "mirror", "--config", str(path)]
        command += [] if instance is None else ["--instance", instance]
        with self._log_path.open("ab") as log:
            self._process: Final = subprocess.Popen(command, stderr=log, stdout=log)

    @property
    def log(self) -> str:
        """What the process has logged."""
        return self._log_path.read_text(encoding="utf-8")

    def kill(self) -> None:
        """End the process as a crash does."""
        self._process.kill()
        self._process.wait(_EXIT_SECONDS)

    def stop(self) -> int:
        """End the process in order. Returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_EXIT_SECONDS)


class MirrorLoad:
    """Writes numbered records to all partitions of a topic. Every third transaction is aborted."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        """The topic exists."""
        self._bootstrap: Final = bootstrap
        self._topic: Final = topic
        self.counts: Final = [0] * partitions
        """Number of committed records of each partition, which have the values 0, 1 and so on."""

    async def write(self, rounds: int) -> None:
        """Write 55 committed records to each partition in each round, but only 50 in every third one."""
        plain = Producer(self._bootstrap, linger_ms=5, compression_type="zstd")
        transactional = Producer(self._bootstrap, transactional_id=f"load-{self._topic}")
        async with plain, transactional:
            await transactional.init_transactions()
            for number in range(rounds):
                await self._write(plain, 50)
                await self._write_transaction(transactional, aborted=number % 3 == 2)

    async def _write(self, producer: Producer, each: int) -> None:
        sent = [
            await producer.send(self._topic, b"%d" % number, partition=partition)
            for partition, count in enumerate(self.counts)
            for number in range(count, count + each)
        ]
        await producer.flush()
        # A record that was not acknowledged must not be missed in the copy.
        await asyncio.gather(*sent)
        self.counts[:] = [count + each for count in self.counts]

    async def _write_transaction(self, producer: Producer, *, aborted: bool) -> None:
        producer.begin_transaction()
        if aborted:
            for partition in range(len(self.counts)):
                await producer.send(self._topic, _ABORTED, partition=partition)
            await producer.flush()
            await producer.abort_transaction()
        else:
            await self._write(producer, 5)
            await producer.commit_transaction()


async def copied_values(bootstrap: str, topic: str, counts: Sequence[int]) -> dict[int, list[int]]:
    """Return the values of a topic by partition when it has as many committed records as `counts` says, or more."""
    found: dict[int, list[int]] = {number: [] for number in range(len(counts))}
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "fetch_max_wait_ms": 100}
    async with Consumer(bootstrap, topic, **settings) as consumer:  # type: ignore[arg-type]
        async with asyncio.timeout(_READ_SECONDS):
            while any(len(found[number]) < count for number, count in enumerate(counts)):
                for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                    found[partition.partition] += [int(record.value) for record in records]
    return found


async def copied_at_least(bootstrap: str, topic: str, partitions: int, total: int) -> None:
    """Return when the topic exists and has at least `total` offsets."""
    async with Consumer(bootstrap, allow_auto_create_topics=False) as consumer:
        async with asyncio.timeout(_READ_SECONDS):
            while await _total(consumer, topic, partitions) < total:
                pass


async def _total(consumer: Consumer, topic: str, partitions: int) -> int:
    from odradek.base.errors import UnknownTopicOrPartitionError
    from odradek.base.types import TopicPartition

    try:
        ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(partitions)])
    except UnknownTopicOrPartitionError:
        return 0
    return sum(ends.values())
