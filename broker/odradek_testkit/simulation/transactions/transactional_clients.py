"""Clients with transactions: writers that commit and abort, and a copier that reads, writes and commits its offsets.

`workload` starts them. A transactional id has one producer after the other. Some die in the middle of a transaction,
some go on after their successor has fenced them. Errors lead where the client library says: to an abort, or to a new
producer. Invariant: the copier continues at its committed offsets after every transaction that was not committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from odradek.base.errors import ProtocolError
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import ConsumerRecord, RecordMetadata
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek_testkit.net import Host, as_host
from odradek_testkit.simulation.history import History
from odradek_testkit.simulation.plan import ACKED, Kind, Plan
from odradek_testkit.simulation.transactions.transaction_history import (
    SentInTransaction,
    SentTransaction,
)
from odradek_testkit.simulation.transactions.transaction_plan import COPIES
from odradek_testkit.simulation.world import CLIENTS, World

COPIER: Final = "copier"
"""Transactional id and group of the copier."""
POLL_MS: Final = 500.0

_RECORDS: Final = 6
_PARTITIONS: Final = 3
_PAUSE_MS: Final = (100.0, 900.0)
_LIFE_MS: Final = (3_000.0, 18_000.0)
_GAP_MS: Final = (0.0, 1_500.0)
_BATCH_BYTES: Final = 400
_COMMITS: Final = 0.65
"""Share of the transactions of a writer that it tries to commit."""
_OVERSLEEPS: Final = 0.04
"""Share of the transactions in which a writer pauses for longer than the time-out."""
_COPIES_STAY: Final = 0.85
"""Share of the transactions of the copier that it tries to commit."""


class _Fate(Enum):
    """How a producer ends before the load ends."""

    LASTS = "lasts"
    DIES = "dies"
    LINGERS = "lingers"
    """It goes on beside its successor."""


class TransactionalClient:
    """Runs the successive producers of one transactional id, each on a separate host, so that it can vanish."""

    def __init__(self, world: World, history: History, plan: Plan, name: str) -> None:
        """`name` is the transactional id. The seed of the plan and the name determine what the client does."""
        self.world: Final = world
        self.history: Final = history
        self.ids: Final = history.transactions.transactional_id(name, clean=plan.kind is not Kind.UNCLEAN)
        self.timeout_ms: Final = plan.transactions.timeout_ms
        self.chance: Final = random.Random(f"{plan.seed}/{name}")
        self.hosts: Final[dict[int, Host]] = {}
        """The host of each producer, by its life."""

    async def run(self, settings: ClientSettings, until_ms: float) -> None:
        """Run producers until `until_ms`, and wait for their answers."""
        lives: list[asyncio.Task[None]] = []
        try:
            while self.world.now_ms < until_ms:
                number = self.ids.new_life()
                host = Host(CLIENTS)
                self.hosts[number] = host
                with as_host(host):
                    life = self.world.loop.create_task(self._live(self._settings(settings), number, until_ms))
                if await self._await_fate(life, number, until_ms) is _Fate.DIES:
                    self._end(host)
                else:
                    lives.append(life)
                await self.world.clock.sleep_ms(self.chance.uniform(*_GAP_MS))
            for life in lives:
                await asyncio.wait([life])
                life.result()
        finally:
            for host in self.hosts.values():
                self._end(host)

    async def _await_fate(self, life: asyncio.Task[None], number: int, until_ms: float) -> _Fate:
        """Return when the life ends, or when its successor is to start."""
        fate = self.chance.choices(list(_Fate), (3, 4, 4))[0]
        ends_ms = self.world.now_ms + self.chance.uniform(*_LIFE_MS)
        if fate is _Fate.LASTS or ends_ms >= until_ms:
            await asyncio.wait([life])
        else:
            await asyncio.wait([life], timeout=(ends_ms - self.world.now_ms) / 1000)
        if life.done():
            life.result()
            return _Fate.LASTS
        if self.ids.initialized_life != number:
            fate = _Fate.DIES  # Its InitProducerId could arrive after that of its successor.
        self.world.note(self.ids.name, fate.value)
        return fate

    def _end(self, host: Host) -> None:
        if host.alive:
            self.world.loop.network.kill(host)
            self.world.discard(host)

    def _settings(self, settings: ClientSettings) -> ClientSettings:
        return settings.replace(
            client_id=self.ids.name,
            transactional_id=self.ids.name,
            transaction_timeout_ms=self.timeout_ms,
            linger_ms=5,
            batch_size=_BATCH_BYTES,
        )

    async def _live(self, settings: ClientSettings, life: int, until_ms: float) -> None:
        """Run one producer until `until_ms`, or until it has an error after which only another one can continue."""
        try:
            async with Producer(settings, clock=self.world.clock) as producer:
                await producer.init_transactions()
                self.ids.initialized(life)
                await self.use(producer, settings, life, until_ms)
        except ProtocolError as error:
            self.world.note(self.ids.name, f"life {life}", type(error).__name__)

    async def use(self, producer: Producer, settings: ClientSettings, life: int, until_ms: float) -> None:
        """Run transactions. Raises the error that ends the producer."""
        raise NotImplementedError

    async def transact(
        self, producer: Producer, life: int, fill: Callable[[SentTransaction], Awaitable[None]], *, commits: bool
    ) -> bool:
        """Run one transaction, whose content `fill` sends. Return whether it was committed.

        After an error, it is aborted. Raises the error that ends the producer.
        """
        producer.begin_transaction()
        transaction = self.ids.begin(life)
        try:
            await fill(transaction)
            if commits:
                transaction.committing()
                await producer.commit_transaction()
                transaction.committed()
                return True
        except ProtocolError as error:
            self.world.note(str(transaction), type(error).__name__)
        await producer.abort_transaction()
        transaction.aborted()
        return False

    async def send(
        self, producer: Producer, transaction: SentTransaction, partition: TopicPartition, text: bytes = b""
    ) -> None:
        """Send a record. Raises the errors of `Producer.send`."""
        sent = self.history.transactions.send(transaction, partition, text)
        future = await producer.send(partition.topic, sent.value, partition=partition.partition)
        future.add_done_callback(_noting(sent))


def _noting(sent: SentInTransaction) -> Callable[[asyncio.Future[RecordMetadata]], None]:
    def note(future: asyncio.Future[RecordMetadata]) -> None:
        # An error also fails the transaction, whose end is in the history.
        if not future.cancelled() and future.exception() is None:
            sent.offset = future.result().offset

    return note


def _partitions(plan: Plan, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for each in plan.topics if each.name == topic for n in range(each.partitions)]


class TransactionalWriter(TransactionalClient):
    """Writes to some partitions."""

    def __init__(self, world: World, history: History, plan: Plan, name: str) -> None:
        """It writes to the partitions of `ACKED`."""
        super().__init__(world, history, plan, name)
        self._partitions: Final = _partitions(plan, ACKED)

    async def use(self, producer: Producer, settings: ClientSettings, life: int, until_ms: float) -> None:
        """Run transactions with pauses between them."""
        while self.world.now_ms < until_ms:
            commits = self.chance.random() < _COMMITS
            await self.transact(producer, life, lambda begun: self._fill(producer, begun), commits=commits)
            await self.world.clock.sleep_ms(self.chance.uniform(*_PAUSE_MS))

    async def _fill(self, producer: Producer, transaction: SentTransaction) -> None:
        count = min(len(self._partitions), self.chance.randint(1, _PARTITIONS))
        chosen = self.chance.sample(self._partitions, count)
        records = self.chance.randint(1, _RECORDS)
        oversleeps_after = self.chance.randrange(records) if self.chance.random() < _OVERSLEEPS else None
        for number in range(records):
            await self.send(producer, transaction, self.chance.choice(chosen))
            if number == oversleeps_after:
                self.world.note(str(transaction), "oversleeps")
                await self.world.clock.sleep_ms(self.timeout_ms * self.chance.uniform(1.0, 1.5))
            elif self.chance.random() < 0.2:
                await self.world.clock.sleep_ms(self.chance.uniform(*_PAUSE_MS))


class Copier(TransactionalClient):
    """Copies the committed records of a topic to another one, each once, with the offsets in the transactions."""

    def __init__(self, world: World, history: History, plan: Plan) -> None:
        """It copies `ACKED` to `COPIES`."""
        super().__init__(world, history, plan, COPIER)
        self._sources: Final = _partitions(plan, ACKED)
        self._targets: Final = _partitions(plan, COPIES)

    async def use(self, producer: Producer, settings: ClientSettings, life: int, until_ms: float) -> None:
        """Copy from the committed offsets on."""
        settings = settings.replace(
            transactional_id=None,
            group_id=COPIER,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=int(POLL_MS),
        )
        async with Consumer(settings, clock=self.world.clock) as consumer:
            consumer.assign(self._sources)
            await self._rewind(consumer)
            while self.world.now_ms < until_ms:
                records = await self._poll(consumer)
                if not records:
                    continue
                commits = self.chance.random() < _COPIES_STAY
                if not await self.transact(producer, life, self._copying(producer, consumer, records), commits=commits):
                    await self._rewind(consumer)
                await self.world.clock.sleep_ms(self.chance.uniform(*_PAUSE_MS))

    async def _rewind(self, consumer: Consumer) -> None:
        """Continue at the committed offsets."""
        for partition in self._sources:
            found = await consumer.committed(partition)
            consumer.seek(partition, 0 if found is None else found.offset)

    async def _poll(self, consumer: Consumer) -> Mapping[TopicPartition, Sequence[ConsumerRecord]]:
        try:
            return await consumer.getmany(timeout_ms=POLL_MS)
        except ProtocolError as error:
            self.world.note(COPIER, type(error).__name__)
            await self.world.clock.sleep_ms(POLL_MS)
            return {}

    def _copying(
        self, producer: Producer, consumer: Consumer, found: Mapping[TopicPartition, Sequence[ConsumerRecord]]
    ) -> Callable[[SentTransaction], Coroutine[Any, Any, None]]:
        async def copy(transaction: SentTransaction) -> None:
            for partition, records in found.items():
                for record in records:
                    text = b" %d %d " % (partition.partition, record.offset) + (record.value or b"")
                    await self.send(producer, transaction, self.chance.choice(self._targets), text)
                transaction.offsets[partition] = records[-1].offset + 1
            await producer.send_offsets_to_transaction(transaction.offsets, consumer.group_metadata())

        return copy
