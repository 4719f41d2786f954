"""The metrics of the coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from odradek.app.coordinator_observation import TimedVerifier, observe_lag
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.lag.lag_lines import measured_group
from odradek.coordinator.lag.lag_values import PartitionLag
from odradek.metrics.collector import BrokerCollector
from odradek.metrics.quantiles import Quantiles
from odradek.metrics.series import RENDERED
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


def test_a_scrape_has_the_lag_of_groups() -> None:
    labels = {"consumergroup": 'the "group"', "topic": "t", "partition": "0"}
    group: Any = SimpleNamespace(group_id='the "group"', member_count=3)
    measured = measured_group(group, [PartitionLag(labels, 5, 7, 1.5)])
    lag: Any = SimpleNamespace(measured=lambda: [measured, measured], omitted=4)
    collector, registry = BrokerCollector(), CollectorRegistry()
    registry.register(collector)
    try:
        observe_lag(collector, lag)
        body = collector.rendered.added_to(generate_latest(registry))
        endless = collector.rendered.added_to(openmetrics.generate_latest(registry))
    finally:
        collector.close()
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    names = [*RENDERED, "odradek_group_lag_omitted_offsets"]
    assert {name: [sample.value for sample in families[name].samples] for name in names} == {
        "kafka_consumergroup_current_offset": [5, 5],
        "kafka_consumergroup_lag": [7, 7],
        "kafka_consumergroup_lag_sum": [7, 7],
        "kafka_consumergroup_members": [3, 3],
        "odradek_consumergroup_lag_seconds": [1.5, 1.5],
        "odradek_group_lag_omitted_offsets": [4],
    }
    assert families["kafka_consumergroup_lag"].samples[0].labels == labels
    assert endless.endswith(b"# EOF\n")
    assert endless.count(b"# EOF") == 1
