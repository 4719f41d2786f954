"""Series about the current process with the names that JVM dashboards query.

The operator and the exporter register them next to prometheus_client's `ProcessCollector`, which has `process_open_fds`
and similar series. A broker's collector uses parts of this module.
"""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector


class GarbageCollections:
    """Counts and times Python's garbage collections through `gc.callbacks`."""

    def __init__(self) -> None:
        """Start observing."""
        self.count, self.seconds, self._began = 0, 0.0, 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.count += 1
            self.seconds += time.perf_counter() - self._began

    def close(self) -> None:
        """Remove the hook. Idempotent."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)


def resident_bytes() -> float:
    """Resident memory of this process, from `/proc`."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return float(int(file.read().split()[1]) * resource.getpagesize())


class IdleShare:
    """Idle share of the thread that reads it, between two readings that are at least a second apart."""

    def __init__(self) -> None:
        """Start measuring."""
        self._wall, self._busy = time.monotonic(), time.thread_time()
        self.last = 1.0

    def read(self) -> float:
        """1 − CPU time / elapsed time of the calling thread since the last reading."""
        wall, busy = time.monotonic(), time.thread_time()
        if wall - self._wall >= 1.0:
            self.last = min(1.0, max(0.0, 1.0 - (busy - self._busy) / (wall - self._wall)))
            self._wall, self._busy = wall, busy
        return self.last


class ProcessTree:
    """This process and its workers, from `/proc`. Sums never decrease when a worker ends."""

    def __init__(self) -> None:
        """Without readings."""
        self._last: dict[str, dict[int, int]] = {}
        self._ended: dict[str, int] = {}

    def disk_bytes(self, key: str) -> float:
        """Bytes that all processes have read from (`read_bytes`) or written to (`write_bytes`) disks."""
        now = {process: _io(process, key) for process in process_ids()}
        for process, value in self._last.get(key, {}).items():
            # The process has ended, or another process has its id now and has done less.
            if now.get(process, -1) < value:
                self._ended[key] = self._ended.get(key, 0) + value
        self._last[key] = now
        return float(self._ended.get(key, 0) + sum(now.values()))


def process_ids() -> list[int]:
    """This process and the processes that it started, without their children."""
    own = Path("/proc/self/task")
    children = []
    for thread in own.iterdir():
        try:
            children += (thread / "children").read_text(encoding="ascii").split()
        except OSError:
            continue  # the thread has ended, or the kernel does not provide the list
    return [os.getpid(), *map(int, children)]


def open_descriptors() -> int:
    """File descriptors that this process and its workers have open."""
    count = 0
    for process in process_ids():
        try:
            count += len(os.listdir(f"/proc/{process}/fd"))
        except OSError:
            continue  # it has ended
    return count


def _io(process: int, key: str) -> int:
    try:
        text = Path(f"/proc/{process}/io").read_text(encoding="ascii")
    except OSError:
        return 0  # it has ended
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value)
    return 0


class ProcessTreeCollector(ProcessCollector):
    """`process_*` of this process, with `process_open_fds` including its workers."""

    def collect(self) -> Iterator[Metric]:
        """Return the families, for a scrape."""
        for family in super().collect():
            if family.name == "process_open_fds":
                yield GaugeMetricFamily(family.name, family.documentation, value=open_descriptors())
            else:
                yield family


class ProcessSeries(Collector):
    """`jvm_memory_used_bytes`, `jvm_threads_current` and `jvm_gc_*` of this Python process."""

    def __init__(self, *, gc_name: str = "jvm_gc_collection_seconds") -> None:
        """`gc_name`: dashboards of an operator query `jvm_gc_pause_seconds` instead."""
        self._gc_name = gc_name
        self._collections = GarbageCollections()

    def collect(self) -> Iterator[Metric]:
        """Return the three families, for a scrape."""
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
        """Remove the hook on the garbage collector. Idempotent."""
        self._collections.close()
