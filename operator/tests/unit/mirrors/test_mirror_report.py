"""The metrics of pods as reports: what is read, what is ignored, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from odradek_operator.mirrors.mirror_report import (
    ERROR,
    MAX_COUNT,
    MirrorReport,
    MirrorReportError,
    ReportedPartition,
    _samples,
)


class Fixed(Collector):
    """Returns one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> list[Metric]:
        return [self._family]


FIRST, SECOND = (ReportedPartition("east", "orders", number) for number in (0, 1))
TEXT = """\
# HELP odradek_mirror_lag_records Offsets of the source that were not copied yet
# TYPE odradek_mirror_lag_records gauge
odradek_mirror_lag_records{source="east",topic="orders",partition="0"} 5.0
odradek_mirror_lag_records{source="east",topic="orders",partition="1"} 7.0
odradek_mirror_lag_seconds{source="east",topic="orders",partition="0"} 1.26
odradek_mirror_partition_failed{source="east",topic="orders",partition="0"} 0.0
odradek_mirror_partition_failed{source="east",topic="orders",partition="1"} 1.0
odradek_mirror_partition_error{source="east",topic="orders",partition="1",error="Raise \\"max\\".\\nNow."} 1.0
process_open_fds 12.0
"""


def test_a_report_is_read() -> None:
    found = MirrorReport.read(TEXT.encode())
    assert found.records == {FIRST: 5, SECOND: 7}
    assert found.seconds == {FIRST: 1.3}
    assert found.stopped == {SECOND: 'Raise "max". Now.'}
    assert (found.partitions, found.lag_records, found.lag_seconds) == (2, 12, 1.3)


def test_a_stopped_partition_without_an_error_is_known() -> None:
    text = 'odradek_mirror_partition_failed{source="e",topic="t",partition="3"} 1\n'
    assert MirrorReport.read(text.encode()).stopped == {ReportedPartition("e", "t", 3): ""}


def test_without_partitions() -> None:
    found = MirrorReport.read(b"process_open_fds 12\n")
    assert found == MirrorReport()
    assert (found.partitions, found.lag_records, found.lag_seconds) == (0, 0, 0.0)


@pytest.mark.parametrize("value", ["-1", "NaN", "+Inf", "1e300"])
def test_values_out_of_bounds_are_ignored(value: str) -> None:
    text = f'odradek_mirror_lag_records{{source="e",topic="t",partition="0"}} {value}\n'
    assert MirrorReport.read(text.encode()).records == {}


@pytest.mark.parametrize(
    "labels",
    [
        "",
        '{source="e"}',
        '{source="e",topic="t",partition="x"}',
        '{source="e",topic="t",partition="-1"}',
        '{source="e",topic="t",partition="99999999999999999999"}',
        '{source="",topic="t",partition="0"}',
    ],
)
def test_series_of_no_partition_are_ignored(labels: str) -> None:
    assert MirrorReport.read(f"odradek_mirror_lag_records{labels} 1\n".encode()) == MirrorReport()


@pytest.mark.parametrize("content", [b"odradek_mirror_lag_records{x 1\n", b"\xff", b"odradek_mirror_lag_records x\n"])
def test_what_is_no_report_is_refused(content: bytes) -> None:
    with pytest.raises(MirrorReportError, match="Prometheus"):
        MirrorReport.read(content)


@given(st.binary(max_size=200))
def test_no_answer_causes_another_error(rest: bytes) -> None:
    for content in (rest, b"odradek_mirror_lag_records" + rest, b"odradek_mirror_partition_error{" + rest):
        try:
            found = MirrorReport.read(content)
        except MirrorReportError:
            continue
        assert 0 <= found.lag_records <= MAX_COUNT


@given(st.dictionaries(st.tuples(st.text(), st.text(), st.text()), st.floats(), max_size=5))
def test_labels_and_values_are_those_of_the_client_library(series: dict[tuple[str, str, str], float]) -> None:
    family = GaugeMetricFamily(ERROR, "Help", labels=("source", "topic", "partition", "error"))
    for (source, topic, error), value in series.items():
        family.add_metric((source, topic, "1", error), value)
    registry = CollectorRegistry()
    registry.register(Fixed(family))
    text = generate_latest(registry)
    (parsed,) = text_string_to_metric_families(text.decode())
    assert [(sample.name, sample.labels) for sample in parsed.samples] == [
        (name, labels) for name, labels, _ in _samples(text)
    ]
    assert [repr(sample.value) for sample in parsed.samples] == [repr(value) for _, _, value in _samples(text)]


def test_the_larger_lag_of_two_pods_counts() -> None:
    one = MirrorReport(records={FIRST: 5, SECOND: 1}, seconds={FIRST: 1.0})
    other = MirrorReport(records={FIRST: 3}, seconds={FIRST: 2.0}, stopped={SECOND: "x"})
    found = MirrorReport.of([one, other])
    assert found.records == {FIRST: 5, SECOND: 1}
    assert found.seconds == {FIRST: 2.0}
    assert found.stopped == {SECOND: "x"}


def test_the_part_of_a_source() -> None:
    elsewhere = ReportedPartition("west", "orders", 0)
    found = MirrorReport(records={FIRST: 5, elsewhere: 7}, seconds={elsewhere: 1.0}, stopped={FIRST: "x"})
    assert found.of_source("east") == MirrorReport(records={FIRST: 5}, stopped={FIRST: "x"})
