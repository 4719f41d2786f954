"""Clients that prepare their transactions, and drivers that commit or abort these by producer id and epoch.

`workload` starts them. A producer waits until the driver has ended its prepared transaction, or ends it at the same
time; often it dies first, and its successor asks for an epoch while the transaction is prepared. If a producer dies
before it knows that its transaction is prepared, no driver knows of the transaction, and the client aborts it.
Invariant: a driver never changes its decision, and every prepared transaction has one driver or is aborted as unknown.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from odradek.base.errors import InvalidTransactionStateError, ProtocolError
from odradek.client.admin import Admin
from odradek.client.models import PreparedTransaction
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.history import History
from odradek_testkit.simulation.plan import Plan
from odradek_testkit.simulation.transactions.transaction_history import PREPARED_STAYS, SentTransaction
from odradek_testkit.simulation.transactions.transactional_clients import TransactionalWriter
from odradek_testkit.simulation.world import World

_COMMITS: Final = 0.65
"""Share of the prepared transactions that the driver commits."""
_LATE: Final = 0.35
"""Share of the prepared transactions that are ended after their time-out would be over."""
_TOGETHER: Final = 0.25
"""Share of the prepared transactions that the producer ends at the same time as the driver."""
_DECISION_MS: Final = (0.0, 2_500.0)
_PAUSE_MS: Final = (100.0, 900.0)
_RETRY_MS: Final = 500.0
_SWEEP_MS: Final = 2_000.0
"""Time between two searches for prepared transactions that no driver knows."""


class PreparingWriter(TransactionalWriter):
    """Writes to some partitions, in transactions that drivers end."""

    def __init__(self, world: World, history: History, plan: Plan, name: str) -> None:
        """`name` is the transactional id."""
        super().__init__(world, history, plan, name)
        self._drivers: Final[set[asyncio.Task[None]]] = set()
        self._driven: Final[set[PreparedTransaction]] = set()
        self._preparing: Final[set[int]] = set()
        """The lives with a PrepareTxn in flight."""
        self._decisions: Final = random.Random(f"{plan.seed}/{name}/decisions")

    async def run(self, settings: ClientSettings, until_ms: float) -> None:
        """Run producers and drivers until `until_ms`, and wait for the last decisions."""
        sweeping = asyncio.create_task(self._sweep_often(settings))
        try:
            await super().run(settings, until_ms)
            while self._drivers:
                await asyncio.wait(self._drivers)
                for driver in [driver for driver in self._drivers if driver.done()]:
                    self._drivers.discard(driver)
                    driver.result()
        finally:
            sweeping.cancel()
            await asyncio.wait({sweeping})

    async def use(self, producer: Producer, settings: ClientSettings, life: int, until_ms: float) -> None:
        """Prepare transactions with pauses between them."""
        while self.world.now_ms < until_ms:
            await self._transact_in_two_phases(producer, settings, life)
            await self.world.clock.sleep_ms(self.chance.uniform(*_PAUSE_MS))

    async def _transact_in_two_phases(self, producer: Producer, settings: ClientSettings, life: int) -> None:
        producer.begin_transaction()
        transaction = self.ids.begin(life)
        try:
            await self._fill(producer, transaction)
            self._preparing.add(life)
            prepared = await producer.prepare_transaction()
        except ProtocolError as error:
            self.world.note(str(transaction), type(error).__name__)
            await producer.abort_transaction()
            transaction.aborted()
            return
        finally:
            self._preparing.discard(life)
        commits = self._decisions.random() < _COMMITS
        transaction.prepared()
        self._driven.add(prepared)
        with self.world.as_clients():
            driver = self.world.loop.create_task(self._drive(settings, prepared, transaction, commits=commits))
        self._drivers.add(driver)
        if self._decisions.random() < _TOGETHER:
            transaction.deciding(commits=commits)
        else:
            await asyncio.wait({driver})
        await (producer.commit_transaction() if commits else producer.abort_transaction())

    async def _drive(
        self, settings: ClientSettings, prepared: PreparedTransaction, transaction: SentTransaction, *, commits: bool
    ) -> None:
        """End a prepared transaction. Raises `Violation` if it was ended otherwise."""
        is_late = self._decisions.random() < _LATE
        pause_ms = self.timeout_ms * self._decisions.uniform(1.0, 1.5) if is_late else 0.0
        await self.world.clock.sleep_ms(pause_ms + self._decisions.uniform(*_DECISION_MS))
        transaction.deciding(commits=commits)
        self.world.note(str(transaction), "is committed" if commits else "is aborted")
        async with Admin(_of_driver(settings), clock=self.world.clock) as admin:
            while True:
                try:
                    await (admin.commit_prepared(prepared) if commits else admin.abort_prepared(prepared))
                    break
                except InvalidTransactionStateError as error:
                    raise Violation(PREPARED_STAYS, f"{transaction} was prepared, but {error}") from error
                except ProtocolError as error:
                    self.world.note(str(transaction), type(error).__name__)
                    if not error.retriable:
                        break  # The next producer has an epoch already: the answer to an earlier attempt was lost.
                await self.world.clock.sleep_ms(_RETRY_MS)
        transaction.decided()

    # Transactions that no driver knows

    async def _sweep_often(self, settings: ClientSettings) -> None:
        async with Admin(_of_driver(settings), clock=self.world.clock) as admin:
            while True:
                await self.world.clock.sleep_ms(_SWEEP_MS)
                try:
                    await self._sweep(admin)
                except ProtocolError as error:
                    self.world.note(self.ids.name, "sweep", type(error).__name__)

    async def sweep(self, settings: ClientSettings) -> None:
        """Abort what is left, after `run`, in a cluster without faults."""
        async with Admin(_of_driver(settings), clock=self.world.clock) as admin:
            await self._sweep(admin)

    async def _sweep(self, admin: Admin) -> None:
        for found in await admin.list_prepared():
            prepared = found.prepared
            # A producer that lives may have prepared it, and not know yet.
            may_be_known = any(self.hosts[life].alive for life in self._preparing)
            if prepared is None or found.transactional_id != self.ids.name or prepared in self._driven or may_be_known:
                continue
            self.world.note(self.ids.name, f"epoch {prepared.epoch} is aborted: no driver knows it")
            await admin.abort_prepared(prepared)


def _of_driver(settings: ClientSettings) -> ClientSettings:
    return settings.replace(client_id="driver", transactional_id=None)
