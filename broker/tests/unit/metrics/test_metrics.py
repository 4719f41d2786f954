"""Metrics: names, labels, counters that never decrease, and the error of quantiles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from odradek.base.errors import RecordFault
from odradek.metrics.collector import BrokerCollector
from odradek.metrics.quantiles import Quantiles
from odradek.metrics.request_stats import PARTS, TIMED_SHARE, TIMED_WHOLE, RequestStats
from odradek.metrics.series import SERIES, SeriesType
from odradek.metrics.topic_stats import BrokerTopicStats


@pytest.fixture
def collector() -> Iterator[BrokerCollector]:
    made = BrokerCollector()
    yield made
    made.close()


def scraped(collector: BrokerCollector) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_topic_series_have_a_sum_and_one_for_each_topic(collector: BrokerCollector) -> None:
    stats = BrokerTopicStats()
    collector.provide_topics(stats)
    stats.of("a").bytes_in += 5
    stats.of("b").bytes_in += 7
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    before = scraped(collector)
    assert before[name, ()] == 12
    assert before[name, (("topic", "a"),)] == 5
    stats.retire("b")
    after = scraped(collector)
    assert after[name, ()] == 12
    assert (name, (("topic", "b"),)) not in after


def test_rare_counts_have_a_series_of_their_topic_from_the_first_event_on(collector: BrokerCollector) -> None:
    stats = BrokerTopicStats()
    collector.provide_topics(stats)
    stats.of("a").count_fault((RecordFault.NO_KEY, 2))
    stats.of("b").count_fault(None)
    name = "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total"
    found = scraped(collector)
    assert {labels: value for (each, labels), value in found.items() if each == name} == {
        (): 2,
        (("topic", "a"),): 2,
    }
    stats.replication_bytes_in += 3
    name = "kafka_server_brokertopicmetrics_replicationbytesin_total"
    assert scraped(collector)[name, ()] == 3


def test_request_series(collector: BrokerCollector) -> None:
    stats = RequestStats()
    collector.provide_requests(stats, error_name=lambda code: f"CODE_{code}")
    sample = stats.times_of("Fetch").sample(10.0, 11.0)
    sample.parked_ms, sample.answered_ms = 13.0, 17.0
    sample.sent(25.0, 41.0)
    for _ in range(3):
        stats.answered("Fetch", 12)
    stats.failed("Fetch", 41)
    stats.failed_whole("Fetch")
    stats.failed("Fetch", 6)
    found = scraped(collector)
    prefix = "kafka_network_requestmetrics_"
    assert found[prefix + "requests_total", (("request", "Fetch"), ("version", "12"))] == 3
    errors = {
        name: found[prefix + "errors_total", (("error", f"CODE_{name}"), ("request", "Fetch"))] for name in (0, 6, 41)
    }
    assert errors == {0: 2, 6: 1, 41: 1}
    parts = {"requestqueue": 1, "local": 2, "remote": 4, "responsequeue": 8, "responsesend": 16, "total": 31}
    for part, elapsed_ms in parts.items():
        name = f"{prefix}{part}timems"
        assert found[name + "_count", (("request", "Fetch"),)] == 3, "every request is counted, timed or not"
        value = found[name, (("quantile", "0.999"), ("request", "Fetch"))]
        assert elapsed_ms <= value <= elapsed_ms * 1.101


def test_a_request_that_never_waited_has_no_remote_part() -> None:
    times = RequestStats().times_of("Fetch")
    sample = times.sample(10.0, 10.0)
    sample.answered_ms = 15.0
    sample.sent(15.0, 15.0)
    totals = dict(zip(PARTS, (quantiles.total for quantiles in times.parts), strict=True))
    assert totals == {"requestqueue": 0, "local": 5, "remote": 0, "responsequeue": 0, "responsesend": 0, "total": 5}


@given(st.lists(st.floats(0, 1e6), min_size=5, max_size=5), st.booleans())
def test_the_parts_of_a_request_add_up_to_its_total(steps: list[float], parked: bool) -> None:
    times = RequestStats().times_of("Fetch")
    received, begun, waiting, answered, sending = accumulate(steps)
    sample = times.sample(received, begun)
    sample.parked_ms, sample.answered_ms = waiting if parked else 0.0, answered
    sample.sent(sending, sending + 1.0)
    *parts, total = (quantiles.total for quantiles in times.parts)
    assert sum(parts) == pytest.approx(total)


def test_the_first_thousand_are_timed_and_then_a_share() -> None:
    times, timed = RequestStats().times_of("Fetch"), 0
    for _ in range(TIMED_WHOLE + 100 * TIMED_SHARE):
        times.countdown -= 1
        if not times.countdown:
            times.sample(0.0, 0.0)
            timed += 1
    assert timed == TIMED_WHOLE + 100


def test_a_summary_is_not_provided_as_a_gauge(collector: BrokerCollector) -> None:
    with pytest.raises(ValueError, match="summary"):
        collector.provide("kafka_network_requestmetrics_totaltimems", list)
    with pytest.raises(ValueError, match="not a summary"):
        collector.provide_summary("kafka_server_replicamanager_leadercount", list)


def test_every_series_has_a_description() -> None:
    for series in SERIES.values():
        assert series.help.endswith(".")
        assert (series.kind is SeriesType.COUNTER) == series.name.endswith("_total")


def test_the_process_speaks_for_itself(collector: BrokerCollector) -> None:
    found = scraped(collector)
    assert found["jvm_memory_used_bytes", (("area", "heap"),)] > 1_000_000
    assert found["jvm_threads_current", ()] >= 1
    assert 0 <= found["kafka_network_socketserver_networkprocessoravgidle_percent", ()] <= 1


@given(st.lists(st.floats(min_value=0.02, max_value=100_000), min_size=1))
def test_quantiles_are_within_a_tenth(values: list[float]) -> None:
    quantiles = Quantiles()
    for value in values:
        quantiles.observe(value)
    ordered = sorted(values)
    for quantile, estimate in quantiles.quantiles():
        exact = ordered[max(0, -(-int(quantile * 1000 * len(ordered)) // 1000) - 1)]
        assert exact * 0.999 <= estimate <= exact * 1.101
    assert quantiles.count == len(values)


def test_values_beyond_the_last_bucket_count_in_it() -> None:
    quantiles = Quantiles()
    for value in (1e6, 1e12, float("inf")):
        quantiles.observe(value)
    assert [estimate for _, estimate in quantiles.quantiles()] == [
        pytest.approx(Quantiles.SMALLEST * Quantiles.GROWTH ** (Quantiles.SIZE - 1))
    ] * len(quantiles.quantiles())
