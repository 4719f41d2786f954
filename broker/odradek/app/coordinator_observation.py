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
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.transactions.transaction_values import TransactionVerifier
from odradek.metrics.collector import BrokerCollector, Distribution
from odradek.metrics.load_times import LoadTimes
from odradek.metrics.quantiles import Quantiles

GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_"
MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
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
    verification_ms: Quantiles
    """Durations of verifications."""
    failed_verifications: Callable[[], int]
    """Number of partitions, since the start, whose verification failed."""


def observe_groups(collector: BrokerCollector, groups: GroupCoordinator, load_times: LoadTimes) -> None:
    """Connect the series of the group coordinator. `load_times`: loads of partitions of `__consumer_offsets`."""
    collector.provide_value(GROUPS + "numgroups", groups.group_count)
    collector.provide_value(GROUPS + "numoffsets", groups.offset_count)
    for state in GroupState:
        collector.provide_value(
            f"{GROUPS}numgroups{state.value.lower()}",
            lambda state=state: groups.group_count(state),  # type: ignore[misc]
        )
    events, prefix = groups.events, "kafka_server_group_coordinator_metrics_"
    collector.provide_value(prefix + "offset_commit_count", lambda: events.commits)
    collector.provide_value(prefix + "offset_expiration_count", lambda: events.expirations)
    collector.provide_value(prefix + "offset_deletion_count", lambda: events.deletions)
    collector.provide_value(prefix + "group_completed_rebalance_count", lambda: events.rebalances)
    _loads(collector, "group", load_times)


def observe_transactions(collector: BrokerCollector, observed: ObservedTransactions) -> None:
    """Connect the series of the transaction coordinator and of verifications."""
    collector.provide_value(MARKERS + "unknowndestinationqueuesize", observed.unknown_destinations)
    collector.provide_value(MARKERS + "logappendretryqueuesize", observed.waiting_completions)
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
