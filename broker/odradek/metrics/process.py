"""Series of the process that tells them, for processes other than a broker: what dashboards made for a JVM ask for.

Registered beside prometheus_client's `ProcessCollector`, which has `process_open_fds` and the like, by the operator and
the exporter. A broker's collector takes its parts from here.
"""

from __future__ import annotations

import gc
import resource
import threading
import time
from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector


class GarbageCollections:
    """Counts and times Python's garbage collections through `gc.callbacks`."""

    def __init__(self) -> None:
        """Begin now."""
        self.count, self.seconds, self._began = 0, 0.0, 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.count += 1
            self.seconds += time.perf_counter() - self._began

    def close(self) -> None:
        """Take the hook away; idempotent."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)


def resident_bytes() -> float:
    """Resident memory of this process, from Linux' `/proc`."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return float(int(file.read().split()[1]) * resource.getpagesize())


class ProcessSeries(Collector):
    """`jvm_memory_used_bytes`, `jvm_threads_current` and `jvm_gc_*` of this Python process."""

    def __init__(self, *, gc_name: str = "jvm_gc_collection_seconds") -> None:
        """`gc_name`: dashboards of an operator ask for `jvm_gc_pause_seconds` instead."""
        self._gc_name = gc_name
        self._collections = GarbageCollections()

    def collect(self) -> Iterator[Metric]:
        """The three families, for a scrape."""
        note = "this name only fills dashboards made for a JVM."
        memory = GaugeMetricFamily("jvm_memory_used_bytes", f"Resident memory of the process; {note}", labels=["area"])
        memory.add_metric(["heap"], resident_bytes())
        yield memory
        yield GaugeMetricFamily(
            "jvm_threads_current", f"Threads of the process; {note}", value=threading.active_count()
        )
        pauses = SummaryMetricFamily(self._gc_name, f"Python's garbage collections; {note}", labels=["gc"])
        pauses.add_metric(["python"], self._collections.count, self._collections.seconds)
        yield pauses

    def close(self) -> None:
        """Take the hook on the garbage collector away; idempotent."""
        self._collections.close()
