"""Stores where the records of a source are in the target: writes the offset-syncs topic of MirrorMaker 2.

The copiers of a process call `copied`. `group_follower`, perhaps in another process, reads the topic. A record has the
format of MirrorMaker 2, and a header with the rest of an `OffsetRun`, which MirrorMaker 2 ignores.

Invariants: a run covers only what one owner has copied without a break. It is complete, and is written, when it has
`RUN_OFFSETS` source offsets, or after `WRITE_AFTER_MS`; pairs that come at once can make it longer as long as it stays
exact. Until it is acknowledged, it is in the position of the partition, so that a crash does not lose it. If a write
fails, the mirror goes on, and groups with offsets in this run continue at its start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Self

from odradek.base.errors import OdradekError
from odradek.base.ports import Clock, Timer
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.models import RecordMetadata
from odradek.client.producer.producer import Producer
from odradek.mirror.following.state_topics import create_state_topics
from odradek.mirror.mirror_config import MirrorConfig, SourceConfig
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.mm2_records import OffsetSync, offset_syncs_topic
from odradek.mirror.offset_translation import RUN_OFFSETS, OffsetRun, runs_with

RUN_HEADER: Final = "odradek-run"
WRITE_AFTER_MS: Final = 1_000

logger: Final = logging.getLogger(__name__)


class OffsetSyncs:
    """The offset syncs of one source. Call `start` first, or use `async with`; `close` is idempotent."""

    def __init__(
        self, config: MirrorConfig, source: SourceConfig, target_client: Cluster, *, clock: Clock | None = None
    ) -> None:
        """`target_client` is started and closed by the caller. `clock` is for tests."""
        self._config: Final = config
        self._cluster: Final = target_client
        self._clock: Final = clock or target_client.clock
        self._topic: Final = offset_syncs_topic(source.name)
        self._growing: dict[TopicPartition, OffsetRun] = {}
        """The run of each partition that the next pair extends."""
        self._grown: set[TopicPartition] = set()
        """Partitions whose growing run has something to write."""
        self._complete: list[tuple[TopicPartition, OffsetRun]] = []
        """Complete runs that are not written yet, in order."""
        self._unacknowledged: dict[TopicPartition, list[OffsetRun]] = {}
        """Complete runs of the partitions that this process copies, until their records are acknowledged."""
        self._wake: Final = asyncio.Event()
        self._timer: Timer | None = None
        self._producer: Producer | None = None
        self._writing: Final = asyncio.Lock()
        self._tasks: Final = TaskOwner()

    async def __aenter__(self) -> Self:
        """Call `start` and return the object."""
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Call `close`."""
        await self.close()

    async def start(self) -> None:
        """Create the topic if necessary, and connect. Raises `NetworkError` and the errors of `Admin.create_topics`."""
        await create_state_topics(self._config, self._cluster, self._topic)
        producer = Producer(self._config.target.settings())
        await producer.start()
        self._producer = producer
        self._tasks.spawn(self._write_when_due(), name=f"offset syncs {self._topic}")

    async def close(self) -> None:
        """Write what is left, and close the connections."""
        producer, self._producer = self._producer, None
        await self._tasks.close()
        if self._timer is not None:
            self._timer.cancel()
        if producer is not None:
            try:
                await self._write(producer)
            finally:
                await producer.close()

    def copied(self, partition: CopiedPartition, source_offset: int, target_offset: int) -> None:
        """Note a pair: the target has the source records before `source_offset`, and they are before `target_offset`.
        All later records are at or after `target_offset`.

        Call it after each committed fetch, with the offsets after its last record and before the marker of the
        transaction, and for each batch whose offset in the target is not as far from that in the source as it was for
        the batch before. It does not wait.
        """
        place = _place(partition)
        known = self._growing.get(place)
        *complete, run = runs_with(known, source_offset, target_offset)
        if run is known:
            return
        for each in complete:
            self._add_complete(place, each)
        self._growing[place] = run
        self._grown.add(place)
        if complete or run.length >= RUN_OFFSETS:
            self._wake.set()
        elif self._timer is None:
            self._timer = self._clock.call_later(WRITE_AFTER_MS, self._wake.set)

    def interrupt(self, partition: CopiedPartition) -> None:
        """Begin a new run with the next pair of a partition. What was noted before is written.

        Call it when a batch was copied to an unknown offset. Otherwise, the next run would cover gaps that nobody has
        reported.
        """
        place = _place(partition)
        run = self._growing.pop(place, None)
        if run is not None and place in self._grown:
            self._grown.discard(place)
            self._add_complete(place, run)
            self._wake.set()

    def forget(self, partition: CopiedPartition) -> None:
        """Write what was noted of a partition, which another process may copy now."""
        self.interrupt(partition)
        self._unacknowledged.pop(_place(partition), None)

    def resume(self, partition: CopiedPartition, runs: Sequence[OffsetRun]) -> None:
        """Write the runs of the position at which a partition starts. It also completes what was noted before."""
        self.forget(partition)
        for run in runs:
            self._add_complete(_place(partition), run)
            self._wake.set()

    def unacknowledged(self, partition: CopiedPartition) -> Sequence[OffsetRun]:
        """Return the complete runs of a partition that would be lost if the process ended now."""
        return self._unacknowledged.get(_place(partition), ())

    def growing(self, partition: CopiedPartition) -> OffsetRun | None:
        """Return the run of a partition that the next pair extends; None if the pair begins a new one."""
        return self._growing.get(_place(partition))

    def _add_complete(self, place: TopicPartition, run: OffsetRun) -> None:
        self._complete.append((place, run))
        self._unacknowledged.setdefault(place, []).append(run)

    async def flush(self) -> None:
        """Write all pairs that were noted before the call."""
        if self._producer is not None:
            await self._write(self._producer)

    async def _write_when_due(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            await self.flush()

    async def _write(self, producer: Producer) -> None:
        async with self._writing:
            for place in sorted(self._grown):
                run = self._growing[place]
                self._add_complete(place, run)
                self._growing[place] = OffsetRun(run.end_source, run.end_target)
            self._grown.clear()
            runs, self._complete = self._complete, []
            await self._write_runs(producer, runs)

    async def _write_runs(self, producer: Producer, runs: Sequence[tuple[TopicPartition, OffsetRun]]) -> None:
        sent: list[asyncio.Future[RecordMetadata]] = []
        try:
            for place, run in runs:
                sync = OffsetSync(place, run.source, run.target)
                headers = ((RUN_HEADER, run.to_header()),)
                sent.append(
                    await producer.send(self._topic, sync.value(), key=sync.key(), partition=0, headers=headers)
                )
            results = await asyncio.gather(*sent, return_exceptions=True)
        except OdradekError as error:
            results = [error]
        self._remove_unacknowledged(runs)
        for result in results:
            if isinstance(result, OdradekError):
                logger.warning("an offset sync was not written to topic %s: %s", self._topic, result)
                break
            if isinstance(result, BaseException):
                raise result

    def _remove_unacknowledged(self, runs: Sequence[tuple[TopicPartition, OffsetRun]]) -> None:
        removed = {id(run) for _, run in runs}
        for place in {place for place, _ in runs}:
            left = [run for run in self._unacknowledged.pop(place, ()) if id(run) not in removed]
            if left:
                self._unacknowledged[place] = left


def _place(partition: CopiedPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
