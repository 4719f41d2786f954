"""What the pods of a Mirror report with their metrics: lag and stopped partitions. Pure.

A pod may be broken or hostile: nothing of its answer is trusted, and the reader of the answer bounds its size. Only the
series in `SERIES` are read. Each has the labels `source`, `topic` and `partition`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from odradek.base.errors import OdradekError
from odradek_operator.objects.pod_facts import clean_text

MAX_METRICS_BYTES: Final = 8 << 20
"""Most bytes of an answer: enough for 20,000 partitions in one pod."""
MAX_COUNT: Final = 2**63 - 1
"""The API server accepts no larger integers."""
MAX_PARTITION: Final = 2**31 - 1

LAG_RECORDS: Final = "odradek_mirror_lag_records"
LAG_SECONDS: Final = "odradek_mirror_lag_seconds"
FAILED: Final = "odradek_mirror_partition_failed"
"""1 for a partition that has stopped with an error."""
ERROR: Final = "odradek_mirror_partition_error"
"""1 for a partition that has stopped. The label `error` says why."""
SERIES: Final = (LAG_RECORDS, LAG_SECONDS, FAILED, ERROR)


class MirrorReportError(OdradekError):
    """An answer is not in Prometheus' text format."""


class ReportedPartition(NamedTuple):
    """A partition of a source."""

    source: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorReport:
    """The partitions that one pod copies, or several."""

    records: Mapping[ReportedPartition, int] = field(default_factory=dict)
    """Records that are not copied yet."""
    seconds: Mapping[ReportedPartition, float] = field(default_factory=dict)
    """Age of the last copied record while others wait, else 0."""
    stopped: Mapping[ReportedPartition, str] = field(default_factory=dict)
    """Why partitions have stopped; empty if a pod does not say why."""

    @classmethod
    def read(cls, content: bytes) -> MirrorReport:
        """Read the metrics of a pod. Raises `MirrorReportError` if they are none. Values that are wrong are ignored."""
        records: dict[ReportedPartition, int] = {}
        seconds: dict[ReportedPartition, float] = {}
        stopped: dict[ReportedPartition, str] = {}
        try:
            lines = (line for line in content.decode().split("\n") if line.startswith(SERIES))
            for family in text_string_to_metric_families("\n".join(lines) + "\n"):
                for sample in family.samples:
                    which = _partition(sample.labels)
                    if which is None or not isfinite(sample.value) or not 0 <= sample.value <= MAX_COUNT:
                        continue
                    if sample.name == LAG_RECORDS:
                        records[which] = min(int(sample.value), MAX_COUNT)
                    elif sample.name == LAG_SECONDS:
                        seconds[which] = round(float(sample.value), 1)
                    elif sample.name in (FAILED, ERROR) and sample.value:
                        stopped[which] = clean_text(sample.labels.get("error")) or stopped.get(which, "")
        except (ValueError, KeyError, IndexError) as error:
            raise MirrorReportError(f"the metrics are not in Prometheus' text format: {error}") from error
        return cls(records=records, seconds=seconds, stopped=stopped)

    @classmethod
    def of(cls, reports: Iterable[MirrorReport]) -> MirrorReport:
        """Return the report of several pods. If two report a partition, the larger lag counts."""
        records: dict[ReportedPartition, int] = {}
        seconds: dict[ReportedPartition, float] = {}
        stopped: dict[ReportedPartition, str] = {}
        for report in reports:
            for which, count in report.records.items():
                records[which] = max(count, records.get(which, 0))
            for which, age in report.seconds.items():
                seconds[which] = max(age, seconds.get(which, 0.0))
            stopped |= report.stopped
        return cls(records=records, seconds=seconds, stopped=stopped)

    def of_source(self, source: str) -> MirrorReport:
        """Return the part about one source."""
        return MirrorReport(
            records={which: value for which, value in self.records.items() if which.source == source},
            seconds={which: value for which, value in self.seconds.items() if which.source == source},
            stopped={which: value for which, value in self.stopped.items() if which.source == source},
        )

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.records.keys() | self.seconds.keys() | self.stopped.keys())

    @property
    def lag_records(self) -> int:
        """Records that are not copied yet, over all partitions."""
        return min(sum(self.records.values()), MAX_COUNT)

    @property
    def lag_seconds(self) -> float:
        """Age of the last copied record while others wait, in the partition with the highest age."""
        return max(self.seconds.values(), default=0.0)


def _partition(labels: Mapping[str, str]) -> ReportedPartition | None:
    """Return the partition that a series is about; None without one."""
    source, topic, number = (labels.get(name, "") for name in ("source", "topic", "partition"))
    if not source or not topic or not (number.isascii() and number.isdigit()) or len(number) > len(str(MAX_PARTITION)):
        return None
    return ReportedPartition(clean_text(source), clean_text(topic), min(int(number), MAX_PARTITION))
