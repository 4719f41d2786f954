"""The series of the process, and the removal of the hook on the garbage collector."""

from __future__ import annotations

import gc
import threading

from prometheus_client import CollectorRegistry

from odradek.metrics.process import ProcessSeries


def test_reports_memory_threads_and_collections_of_this_process() -> None:
    hooks = len(gc.callbacks)
    series = ProcessSeries()
    registry = CollectorRegistry()
    registry.register(series)
    try:
        before = registry.get_sample_value("jvm_gc_collection_seconds_count", {"gc": "python"})
        gc.collect()
        after = registry.get_sample_value("jvm_gc_collection_seconds_count", {"gc": "python"})
        assert before is not None
        assert after is not None
        assert after >= before + 1
        assert (registry.get_sample_value("jvm_gc_collection_seconds_sum", {"gc": "python"}) or 0) > 0
        assert registry.get_sample_value("jvm_threads_current") == threading.active_count()
        assert (registry.get_sample_value("jvm_memory_used_bytes", {"area": "heap"}) or 0) > 1_000_000
    finally:
        series.close()
    series.close()
    assert len(gc.callbacks) == hooks


def test_the_operators_dashboards_have_another_name_for_pauses() -> None:
    series = ProcessSeries(gc_name="jvm_gc_pause_seconds")
    try:
        names = {sample.name for family in series.collect() for sample in family.samples}
    finally:
        series.close()
    assert {"jvm_gc_pause_seconds_count", "jvm_gc_pause_seconds_sum"} <= names
