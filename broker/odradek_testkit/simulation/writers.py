"""Producers of a simulation: this project's client with small batches; records are identified by their values.

`workload` starts them. Invariant: every record is in the history before the client gets it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from odradek.base.errors import OdradekError
from odradek.client.models import RecordMetadata
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek_testkit.simulation.history import ProducerHistory, Sent
from odradek_testkit.simulation.plan import TopicPlan
from odradek_testkit.simulation.world import World

FOREVER_MS: Final = 2**31 - 1
"""A producer never gives up: a record without an answer at the end is a violation, which a timeout would hide."""

PAUSE_MS: Final = (100.0, 700.0)
BURST: Final = 6
BATCH_BYTES: Final = 400
"""About ten records, so that several batches per partition are in flight."""


class Writer:
    """A producer and its history."""

    def __init__(self, world: World, history: ProducerHistory, topics: tuple[TopicPlan, ...], seed: str) -> None:
        """It writes to `topics`; `seed` determines its pauses."""
        self._world: Final = world
        self._history: Final = history
        self._topics: Final = topics
        self._random: Final = random.Random(seed)

    async def run(self, settings: ClientSettings, until_ms: float) -> None:
        """Write until `end`, and wait for all answers."""
        async with Producer(self._settings(settings), clock=self._world.clock) as producer:
            while self._world.now_ms < until_ms:
                for _ in range(self._random.randint(1, BURST)):
                    await self._send(producer)
                await self._world.clock.sleep_ms(self._random.uniform(*PAUSE_MS))
            await producer.flush()

    def _settings(self, settings: ClientSettings) -> ClientSettings:
        settings = settings.replace(
            client_id=self._history.name,
            delivery_timeout_ms=FOREVER_MS,
            max_block_ms=FOREVER_MS,
            linger_ms=5,
            batch_size=BATCH_BYTES,
        )
        if self._history.idempotent:
            return settings.replace(acks="all", enable_idempotence=True)
        return settings.replace(acks="1", enable_idempotence=False, max_in_flight_requests_per_connection=1)

    async def _send(self, producer: Producer) -> None:
        topic = self._random.choice(self._topics)
        chosen = self._random.randrange(3 * topic.partitions)
        partition = chosen if chosen < topic.partitions else None
        key = b"k%d" % self._random.randrange(20)
        sent = self._history.send(topic.name, partition)
        try:
            future = await producer.send(topic.name, sent.record_id, key=key, partition=partition)
        except OdradekError as error:
            sent.refused(type(error).__name__)
            self._world.note("not-sent", sent.record_id.decode(), type(error).__name__)
        else:
            future.add_done_callback(self._noting(sent))

    def _noting(self, sent: Sent) -> Callable[[asyncio.Future[RecordMetadata]], None]:
        def note(future: asyncio.Future[RecordMetadata]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                place = future.result()
                sent.acknowledged(place.partition, place.offset)
            else:
                sent.refused(type(error).__name__)
                self._world.note("refused", sent.record_id.decode(), type(error).__name__)

        return note
