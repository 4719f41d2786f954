"""Metrics: names, labels, sums that never fall, quantiles within their error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from odradek.metrics import SERIES, BrokerCollector, BrokerTopicStats, Kind, Quantiles, RequestStats


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


def test_request_series(collector: BrokerCollector) -> None:
    stats = RequestStats()
    collector.provide_requests(stats)
    stats.answered("Fetch", 12, 3.0)
    stats.failed("Fetch", "NotController")
    found = scraped(collector)
    prefix = "kafka_network_requestmetrics_"
    assert found[prefix + "requests_total", (("request", "Fetch"), ("version", "12"))] == 1
    assert found[prefix + "errors_total", (("error", "NotController"), ("request", "Fetch"))] == 1
    assert found[prefix + "totaltimems_count", (("request", "Fetch"),)] == 1
    assert found[prefix + "totaltimems", (("quantile", "0.999"), ("request", "Fetch"))] == pytest.approx(3.0, rel=0.11)


def test_a_summary_is_not_provided_as_a_gauge(collector: BrokerCollector) -> None:
    with pytest.raises(ValueError, match="summary"):
        collector.provide("kafka_network_requestmetrics_totaltimems", list)
    with pytest.raises(ValueError, match="not a summary"):
        collector.provide_summary("kafka_server_replicamanager_leadercount", list)


def test_every_series_says_what_it_means() -> None:
    for series in SERIES.values():
        assert series.help.endswith(".")
        assert (series.kind is Kind.COUNTER) == series.name.endswith("_total")


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
