"""Connects the metrics of the coordinators with their sources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.groups.classic.classic_group import GroupState
from odradek.coordinator.groups.consumer.consumer_values import ConsumerGroupPhase
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.lag.lag_monitor import LagMonitor
from odradek.coordinator.transactions.transaction_values import TransactionVerifier
from odradek.metrics.collector import BrokerCollector, Distribution
from odradek.metrics.count_rates import CountRate
from odradek.metrics.load_times import LoadTimes
from odradek.metrics.quantiles import Quantiles
from odradek.metrics.series import RENDERED

GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_"
MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
PREPARED: Final = "odradek_transaction_coordinator_"
VERIFICATION: Final = "kafka_server_addpartitionstotxnmanager_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTransactions:
    """The parts of the transaction coordinator that provide metrics, and the verification of transactions."""

    load_times: LoadTimes
    """Loads of partitions of `__transaction_state`."""
    unknown_destinations: Callable[[], int]
    """Number of markers that wait because a partition has no known leader."""
    waiting_completions: Callable[[], int]
    """Number of transactions whose last record could not be appended and is tried again."""
    prepared: Callable[[], int]
    """Number of prepared transactions."""
    oldest_prepared_ms: Callable[[], int]
    """Time since the start of the oldest prepared transaction."""
    verification_ms: Quantiles
    """Durations of verifications."""
    failed_verifications: Callable[[], int]
    """Number of partitions, since the start, whose verification failed."""


def observe_groups(collector: BrokerCollector, groups: GroupCoordinator, load_times: LoadTimes, clock: Clock) -> None:
    """Connect the series of the group coordinator. `load_times`: loads of partitions of `__consumer_offsets`."""
    collector.provide_value(GROUPS + "numgroups", groups.group_count)
    collector.provide_value(GROUPS + "numoffsets", groups.offset_count)
    for state in GroupState:
        collector.provide_value(
            f"{GROUPS}numgroups{state.value.lower()}",
            lambda state=state: groups.group_count(state),  # type: ignore[misc]
        )
    events, prefix = groups.events, "kafka_server_group_coordinator_metrics_"
    collector.provide(
        prefix + "group_count",
        lambda: [({"protocol": kind}, count) for kind, count in groups.counts_by_type().items()],
    )
    collector.provide(
        prefix + "consumer_group_count",
        lambda: [({"state": state.value}, groups.group_count(state)) for state in ConsumerGroupPhase],
    )
    counts: dict[str, Callable[[], int]] = {
        "offset_commit": lambda: events.commits,
        "offset_expiration": lambda: events.expirations,
        "offset_deletion": lambda: events.deletions,
        "group_completed_rebalance": lambda: events.rebalances,
        "consumer_group_rebalance": lambda: events.consumer_rebalances,
    }
    for name, count in counts.items():
        collector.provide_value(f"{prefix}{name}_count", count)
        collector.provide_value(f"{prefix}{name}_rate", CountRate(clock, count).read)
    _loads(collector, "group", load_times)


def observe_lag(collector: BrokerCollector, lag: LagMonitor) -> None:
    """Connect the series of consumer lag."""
    for name in RENDERED:
        collector.rendered.provide(
            name,
            lambda name=name: [measured.lines[name] for measured in lag.measured()],  # type: ignore[misc]
        )
    collector.provide_value("odradek_group_lag_omitted_offsets", lambda: lag.omitted)


def observe_transactions(collector: BrokerCollector, observed: ObservedTransactions) -> None:
    """Connect the series of the transaction coordinator and of verifications."""
    collector.provide_value(MARKERS + "unknowndestinationqueuesize", observed.unknown_destinations)
    collector.provide_value(MARKERS + "logappendretryqueuesize", observed.waiting_completions)
    collector.provide_value(PREPARED + "prepared", observed.prepared)
    collector.provide_value(PREPARED + "oldest_prepared_ms", observed.oldest_prepared_ms)
    collector.provide_summary(VERIFICATION + "verificationtimems", lambda: [Distribution({}, observed.verification_ms)])
    collector.provide_value(VERIFICATION + "verificationfailurerate_total", observed.failed_verifications)
    _loads(collector, "transaction", observed.load_times)


def _loads(collector: BrokerCollector, kind: str, load_times: LoadTimes) -> None:
    prefix = f"kafka_server_{kind}_coordinator_metrics_partition_load_time_"
    collector.provide_value(prefix + "max", lambda: load_times.max_ms)
    collector.provide_value(prefix + "avg", lambda: load_times.mean_ms)


class TimedVerifier:
    """A `TransactionVerifier` that measures how long each verification takes."""

    def __init__(self, verifier: TransactionVerifier, clock: Clock, duration_ms: Quantiles) -> None:
        """`duration_ms` gets the durations."""
        self._verifier: Final = verifier
        self._clock: Final = clock
        self._duration_ms: Final = duration_ms

    def verify(
        self, writer: TransactionalWriter, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Mapping[TopicPartition, int]]:
        """Return an error code per partition; see `TransactionVerifier`."""
        began_ms = self._clock.monotonic_ms()
        outcome = asyncio.ensure_future(self._verifier.verify(writer, partitions))
        outcome.add_done_callback(lambda _: self._duration_ms.observe(self._clock.monotonic_ms() - began_ms))
        return outcome
