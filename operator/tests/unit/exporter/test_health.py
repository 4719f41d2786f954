"""The health of the exporter: probes and counters."""

from __future__ import annotations

from odradek_operator.exporter.exporter_settings import ExporterSettings
from odradek_operator.exporter.health import Health


def test_the_probes_follow_the_collections() -> None:
    now = 0.0
    health = Health(ExporterSettings(stale_after=60), lambda: now)

    def passed() -> tuple[bool, bool]:
        return health.live().passed, health.ready().passed

    assert passed() == (True, False)
    health.succeeded(0.5)
    assert passed() == (True, True)
    now = 50.0
    health.failed("nobody answers")
    assert passed() == (True, True), "the reported values are still current"
    now = 61.0
    assert passed() == (True, False)
    assert "nobody answers" in health.ready().reason
    health.succeeded(0.5)
    assert passed() == (True, True)
    now = 61.0 + 181.0
    assert passed() == (False, False)


def test_collections_are_counted() -> None:
    health = Health(ExporterSettings(), lambda: 0.0)
    health.succeeded(0.5, failed_brokers=2)
    health.succeeded(0.25, failed_brokers=1)
    health.failed("no")
    samples = {
        (sample.name, *sample.labels.values()): sample.value for family in health.collect() for sample in family.samples
    }
    assert samples == {
        ("odradek_exporter_collections_total", "succeeded"): 2,
        ("odradek_exporter_collections_total", "failed"): 1,
        ("odradek_exporter_collection_seconds",): 0.25,
        ("odradek_exporter_failed_brokers",): 1,
    }
