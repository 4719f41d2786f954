"""The metrics of a mirror process.

`mirror_process` registers the collector. Only the partitions that this process copies have series, so that over all
processes each partition has them once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from odradek.base.ports import Clock
from odradek.mirror.copier_group import CopierGroup
from odradek.mirror.owned_partitions import CopyState, OwnedPartition

MAX_ERROR: Final = 300
"""Maximum length of an error in a label."""
_LABELS: Final = ("source", "topic", "partition")


class MirrorCollector(Collector):
    """Collects the metrics of one process at each scrape."""

    def __init__(self, copiers: CopierGroup, clock: Clock) -> None:
        """`clock` is that of the timestamps."""
        self._copiers: Final = copiers
        self._clock: Final = clock

    def collect(self) -> Iterable[Metric]:
        """Return a family for each metric."""
        yield from self._of_partitions()
        yield from self._of_process()

    def _of_partitions(self) -> Iterable[Metric]:
        lag = GaugeMetricFamily(
            "odradek_mirror_lag_records", "Offsets of the source that are not copied yet", labels=_LABELS
        )
        late = GaugeMetricFamily(
            "odradek_mirror_lag_seconds",
            "Age of the last copied record while there are others to copy, else 0",
            labels=_LABELS,
        )
        failed = GaugeMetricFamily(
            "odradek_mirror_partition_failed", "1 if the partition is stopped by an error, else 0", labels=_LABELS
        )
        reason = GaugeMetricFamily(
            "odradek_mirror_partition_error",
            "1 for a partition that is stopped, with the reason in the label error",
            labels=(*_LABELS, "error"),
        )
        records = CounterMetricFamily("odradek_mirror_records", "Records that this process copied", labels=_LABELS)
        size = CounterMetricFamily("odradek_mirror_bytes", "Bytes of copied batches", labels=_LABELS)
        for owned in self._copiers.owned:
            labels = (owned.partition.source, owned.partition.topic, str(owned.partition.partition))
            failed.add_metric(labels, int(owned.state is CopyState.FAILED))
            if owned.state is CopyState.FAILED:
                reason.add_metric((*labels, str(owned.error)[:MAX_ERROR]), 1)
            records.add_metric(labels, owned.records)
            size.add_metric(labels, owned.bytes)
            left = self._lag(owned)
            if left is not None:
                lag.add_metric(labels, left)
                late.add_metric(labels, self._seconds(owned, left))
        return lag, late, failed, reason, records, size

    def _lag(self, owned: OwnedPartition) -> int | None:
        return self._copiers.readers[owned.partition.source].lag(owned.partition)

    def _seconds(self, owned: OwnedPartition, left: int) -> float:
        if left == 0 or owned.newest_ms < 0:
            return 0.0
        return max(0.0, (self._clock.wall_ms() - owned.newest_ms) / 1000)

    def _of_process(self) -> Iterable[Metric]:
        rounds = CounterMetricFamily(
            "odradek_mirror_transactions", "Transactions of the target by their end", labels=("end",)
        )
        rounds.add_metric(("committed",), self._copiers.rounds.count)
        rounds.add_metric(("aborted",), self._copiers.rounds.aborted)
        states = GaugeMetricFamily(
            "odradek_mirror_partitions", "Partitions of this process by source and state", labels=("source", "state")
        )
        counts = Counter((owned.partition.source, owned.state) for owned in self._copiers.owned)
        connected = GaugeMetricFamily(
            "odradek_mirror_source_connected", "Whether the source was reached since the start", labels=("source",)
        )
        for name, reader in self._copiers.readers.items():
            connected.add_metric((name,), int(reader.is_connected))
            for state in CopyState:
                states.add_metric((name, state.value), counts[name, state])
        return rounds, states, connected
