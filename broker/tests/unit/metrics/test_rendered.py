"""Gauges that are rendered when they are measured."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.metrics import rendered
from odradek.metrics.rendered import RenderedGauges


@pytest.mark.parametrize("text", ["plain", 'in "quotes"', "back\\slash", "two\nlines", "\\n"])
def test_labels_are_read_back(text: str) -> None:
    body = "# TYPE g gauge\n" + rendered.sample("g", {"group": text, "other": "x"}, 2)
    (family,) = text_string_to_metric_families(body)
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"group": text, "other": "x"}, 2)]


def test_other_names_are_refused() -> None:
    with pytest.raises(KeyError):
        RenderedGauges().provide("kafka_server_something", list)


def test_a_gauge_without_samples_has_a_heading() -> None:
    gauges = RenderedGauges()
    gauges.provide("kafka_consumergroup_lag", list)
    assert b"# TYPE kafka_consumergroup_lag gauge\n" in gauges.added_to(b"x 1\n")
