"""The metrics of the coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

from odradek.app.coordinator_observation import TimedVerifier
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.metrics.quantiles import Quantiles
from odradek_testkit.loop import VirtualClock, run_virtual

PARTITION = TopicPartition("events", 0)
WRITER = TransactionalWriter("tx", 4, 0)


class Verifications:
    """A verifier whose results the test sets."""

    def __init__(self) -> None:
        self.outcomes: list[asyncio.Future[Mapping[TopicPartition, int]]] = []

    def verify(
        self, writer: TransactionalWriter, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Mapping[TopicPartition, int]]:
        outcome: asyncio.Future[Mapping[TopicPartition, int]] = asyncio.get_running_loop().create_future()
        self.outcomes.append(outcome)
        return outcome


def test_the_duration_of_a_verification_is_measured() -> None:
    async def main() -> None:
        clock, verifications, durations = VirtualClock(), Verifications(), Quantiles()
        verifier = TimedVerifier(verifications, clock, durations)
        waiting = [verifier.verify(WRITER, [PARTITION]) for _ in range(2)]
        await clock.sleep_ms(40)
        for outcome in verifications.outcomes:
            outcome.set_result({PARTITION: 0})
        assert await asyncio.gather(*waiting) == [{PARTITION: 0}] * 2
        assert (durations.count, durations.total) == (2, 80)

    run_virtual(main())
