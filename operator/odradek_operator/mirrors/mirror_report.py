"""What the pods of a Mirror report with their metrics: lag and stopped partitions. Pure.

A pod may be broken or hostile: nothing of its answer is trusted, and the reader of the answer bounds its size. Only the
series in `SERIES` are read. Each has the labels `source`, `topic` and `partition`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

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

# prometheus_client has a parser for the whole format. It needs three times as much CPU time: for 20,000 partitions,
# more than a second in each round.
_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)(?: -?\d+)?")
"""A line with a sample: name, labels, value, and sometimes a timestamp."""
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)",?')
_ESCAPED: Final = re.compile(r"\\(.)")


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
        for name, labels, value in _samples(content):
            which = _partition(labels)
            if which is None or not isfinite(value) or not 0 <= value <= MAX_COUNT:
                continue
            if name == LAG_RECORDS:
                records[which] = min(int(value), MAX_COUNT)
            elif name == LAG_SECONDS:
                seconds[which] = round(value, 1)
            elif name in (FAILED, ERROR) and value:
                stopped[which] = clean_text(labels.get("error")) or stopped.get(which, "")
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


def _samples(content: bytes) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, labels and value of each sample in `SERIES`. Raises `MirrorReportError`."""
    try:
        for line in content.decode().split("\n"):
            if line.startswith(SERIES):
                found = _SAMPLE.fullmatch(line)
                if found is None:
                    raise MirrorReportError("the metrics have a line that is not in Prometheus' text format")
                labels = {name: _unescaped(text) for name, text in _LABEL.findall(found[2] or "")}
                yield found[1], labels, float(found[3])
    except ValueError as error:
        raise MirrorReportError(f"the metrics are not in Prometheus' text format: {error}") from error


def _unescaped(text: str) -> str:
    """Return the value of a label without its escapes: backslash, quotation mark and line feed."""
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text


def _partition(labels: Mapping[str, str]) -> ReportedPartition | None:
    """Return the partition that a series is about; None without one."""
    source, topic, number = (labels.get(name, "") for name in ("source", "topic", "partition"))
    if not source or not topic or not (number.isascii() and number.isdigit()) or len(number) > len(str(MAX_PARTITION)):
        return None
    return ReportedPartition(clean_text(source), clean_text(topic), min(int(number), MAX_PARTITION))
