"""Consumers of a simulation: members of a group that join, leave and die, and a reader without a group.

They record what they read, own and commit in the history. `workload` starts them. Invariant: a member commits only
records that it received in the assignment for which it commits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from odradek.base.errors import OdradekError, OffsetOutOfRangeError, ProtocolError
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.fetched import iterate_records
from odradek.client.settings import ClientSettings
from odradek_testkit.net import Host, as_host
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.group_plan import CONSUMER
from odradek_testkit.simulation.history import Answer, GroupHistory, History
from odradek_testkit.simulation.world import CLIENTS, World

READER: Final = "reader"
COMMITTED_READER: Final = "committed-reader"
POLL_MS: Final = 1000.0
POLL_INTERVAL_MS: Final = 8000


class Reader:
    """Reads everything from the beginning, partition by partition, without a group."""

    def __init__(
        self,
        world: World,
        history: History,
        partitions: Iterable[TopicPartition],
        *,
        clean: bool,
        committed: bool = False,
    ) -> None:
        """`clean`: there is no unclean election, so no record that a reader has seen is lost.

        `committed`: it reads with read_committed, otherwise with read_uncommitted.
        """
        self._name: Final = COMMITTED_READER if committed else READER
        self._committed: Final = committed
        self._world: Final = world
        self._history: Final = history
        self._partitions: Final = sorted(partitions)
        self._clean: Final = clean

    def next_offset(self, partition: TopicPartition) -> int:
        """Return the offset after the last record that was read."""
        return max(self._history.reading(self._name, partition).records, default=-1) + 1

    async def run(self, settings: ClientSettings) -> None:
        """Read until cancelled."""
        reset = "none" if self._clean else "earliest"
        settings = settings.replace(client_id=self._name, auto_offset_reset=reset, fetch_max_wait_ms=int(POLL_MS))
        if self._committed:
            settings = settings.replace(isolation_level="read_committed")
        async with Consumer(settings, clock=self._world.clock) as consumer:
            consumer.assign(self._partitions)
            for partition in self._partitions:
                consumer.seek(partition, 0)
            while True:
                await self._read(consumer)

    async def _read(self, consumer: Consumer) -> None:
        try:
            fetches = await consumer.getmany_raw(timeout_ms=POLL_MS)
        except OffsetOutOfRangeError as error:
            if self._clean:
                raise Violation("seen-stays", f"an offset that the reader has read is out of range: {error}") from error
            self._world.note(self._name, "OffsetOutOfRangeError")
            return
        except ProtocolError as error:
            self._world.note(self._name, type(error).__name__)
            await self._world.clock.sleep_ms(POLL_MS / 2)
            return
        for fetch in fetches:
            partition = fetch.topic_partition
            reading = self._history.reading(self._name, partition)
            reading.high_watermark = max(reading.high_watermark, fetch.high_watermark)
            for records, _ in iterate_records(fetch):
                for record in records:
                    if self._clean:
                        reading.note_read(self._name, partition, record.offset, record.value or b"")
                        if self._committed:
                            self._history.transactions.check_seen(record.value or b"")
                    else:
                        reading.records[record.offset] = record.value or b""


class End(Enum):
    """How a member ends."""

    LEAVES = "leaves"
    DIES = "dies"
    STALLS = "stalls"
    """It does not poll for longer than max.poll.interval.ms, then continues."""


class Member:
    """Runs one consumer of a group after another."""

    def __init__(self, world: World, history: GroupHistory, name: str, seed: str) -> None:
        """`seed` determines how its consumers end."""
        self._world: Final = world
        self._history: Final = history
        self._name: Final = name
        self._random: Final = random.Random(seed)
        self._pending: dict[TopicPartition, int] = {}
        self._consumer: Consumer | None = None
        self._has_epochs = False
        """Whether generations are member epochs, which are stored before a member learns them (KIP-848)."""

    async def run(self, settings: ClientSettings, topics: Sequence[str], load_ends_ms: float) -> None:
        """Replace consumers until the load ends, then run the last one until cancelled."""
        self._has_epochs = settings.group_protocol == CONSUMER
        settings = settings.replace(
            client_id=self._name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_interval_ms=POLL_INTERVAL_MS,
            fetch_max_wait_ms=int(POLL_MS),
        )
        await self._world.clock.sleep_ms(self._random.uniform(0, 3000))
        while True:
            await self._live(settings, topics, load_ends_ms)
            await self._world.clock.sleep_ms(self._random.uniform(0, 2000))

    async def _live(self, settings: ClientSettings, topics: Sequence[str], load_ends_ms: float) -> None:
        """Run one consumer on a separate host, so that it can vanish."""
        end = self._random.choices(list(End), (4, 3, 2))[0]
        ends_ms = self._world.now_ms + self._random.uniform(3000, 25_000)
        host = Host(CLIENTS)
        with as_host(host):
            life = self._world.loop.create_task(self._consume(settings, topics))
        try:
            if ends_ms >= load_ends_ms:
                await life
                return
            await asyncio.wait([life], timeout=(ends_ms - self._world.now_ms) / 1000)
            if life.done():
                life.result()
            self._world.note(self._name, end.value)
            if end is not End.DIES:
                await self._take_leave(host, life, stalls=end is End.STALLS)
        finally:
            self._world.loop.network.kill(host)
            self._world.discard(host)
            self._pending.clear()
            self._consumer = None

    async def _take_leave(self, host: Host, life: asyncio.Task[None], *, stalls: bool) -> None:
        life.cancel()
        await asyncio.wait([life])
        if stalls:
            await self._world.clock.sleep_ms(1.5 * POLL_INTERVAL_MS)
        consumer = self._consumer
        if consumer is not None:
            with as_host(host):
                await asyncio.wait([self._world.loop.create_task(self._close(consumer))], timeout=10)

    async def _close(self, consumer: Consumer) -> None:
        try:
            await consumer.close()
        except OdradekError as error:
            self._world.note(self._name, "close", type(error).__name__)

    async def _consume(self, settings: ClientSettings, topics: Sequence[str]) -> None:
        consumer = self._consumer = Consumer(settings, clock=self._world.clock)
        try:
            await consumer.start()
        except ProtocolError as error:
            self._world.note(self._name, "cannot-start", type(error).__name__)
            return
        consumer.subscribe(topics, listener=self)
        while True:
            try:
                await self._poll(consumer)
            except ProtocolError as error:
                self._world.note(self._name, type(error).__name__)
                await self._world.clock.sleep_ms(POLL_MS / 2)

    async def _poll(self, consumer: Consumer) -> None:
        for partition, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
            self._history.got(partition, [record.offset for record in records])
            self._pending[partition] = records[-1].offset + 1
        generation, member, _ = consumer.membership
        if generation > 0 and self._has_epochs:
            # The member may keep partitions in a new epoch without a call of the listener. A classic generation may
            # begin twice: it is stored with the assignment only, and the coordinator may move before.
            self._history.assigned(generation, member, tuple(consumer.assignment()))
        if self._random.random() < 0.4:
            await self._commit(consumer)

    async def _commit(self, consumer: Consumer) -> None:
        offsets, self._pending = self._pending, {}
        if not offsets:
            return
        commits = self._history.commit(offsets, self._world.now_ms)
        try:
            await consumer.commit(offsets)
        except ProtocolError as error:
            # An earlier attempt of the same commit may have been carried out: its outcome is unknown.
            self._world.note(self._name, "commit", type(error).__name__)
        else:
            self._history.settle(commits, Answer.ACKNOWLEDGED, self._world.now_ms)

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit the processed records, like an application."""
        if self._consumer is not None:
            await self._commit(self._consumer)

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget what was processed: other members may already have the partitions."""
        for partition in partitions:
            self._pending.pop(partition, None)
        if self._consumer is not None:
            self._history.removed(self._consumer.membership.member_id)

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Record the assignment of a new generation."""
        if self._consumer is not None:
            generation, member, _ = self._consumer.membership
            self._world.note(self._name, f"generation {generation}", *(str(part) for part in partitions))
            self._history.assigned(generation, member, tuple(partitions))
