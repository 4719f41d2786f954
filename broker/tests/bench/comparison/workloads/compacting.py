"""Compaction of one large log, and its effect on the latency of another topic."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from comparison import loading
from comparison.clients import calling
from comparison.figures import Figures
from comparison.systems import System
from comparison.waiting import pause, wait_until
from comparison.workloads.base import Bench, Workload, at_least, topic_of
from odradek.app.broker import CLEANER_NICENESS
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import ConfigChange, ConfigResource

STEADY_TOPIC: Final = "steady"
STEADY_RATE: Final = 1_000
STEADY_BYTES: Final = 1_000
SETTLE_SECONDS: Final = 10.0
SEGMENT_BYTES: Final = 100 << 20
RECORD_BYTES: Final = 200
_CHECKPOINT: Final = "cleaner-offset-checkpoint"
_SPINNING: Final = """
import os, sys, time
os.nice(int(sys.argv[1]))
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    pass
"""
"""A process that only spins, with the same low priority as compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact(Workload):
    """Compaction of a log of keyed records, while a producer and a consumer run at a fixed rate."""

    log_bytes: int
    keys: int
    baseline_seconds: float

    def scaled(self, scale: float) -> Self:
        return replace(
            self,
            log_bytes=at_least(3 * SEGMENT_BYTES, self.log_bytes * scale),
            keys=at_least(100_000, self.keys * scale),
            baseline_seconds=max(5.0, self.baseline_seconds * min(1.0, scale)),
        )

    def before(self, bench: Bench, number: int) -> None:
        # The log is not compacted while it is written, so that compaction has a defined start.
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "segment.bytes": str(SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "0.01",
        }
        topic = topic_of(number)
        bench.system.create_topic(topic, 1, configs=configs)
        bench.system.create_topic(f"{STEADY_TOPIC}-{topic}", 1)
        loading.fill_keyed(
            bench.system.first,
            topic,
            records=self.log_bytes // RECORD_BYTES,
            record_bytes=RECORD_BYTES,
            keys=self.keys,
        )

    def run(self, bench: Bench, number: int) -> Figures:
        system, topic = bench.system, topic_of(number)
        folder = system.log_folders[0] / f"{topic}-0"
        bases = _sealed(folder)
        dirty = sum(_segment(folder, base).stat().st_size for base in bases[:-1])
        host, port = system.first
        wanted = {
            "host": host,
            "port": port,
            "topic": f"{STEADY_TOPIC}-{topic}",
            "rate": STEADY_RATE,
            "record_bytes": STEADY_BYTES,
        }
        with calling.started("steady", wanted) as steady:
            pause(SETTLE_SECONDS)
            steady.tell("before")
            pause(self.baseline_seconds)
            steady.tell("spinning")
            _spin(self.baseline_seconds)
            steady.tell("during")
            began = time.monotonic()
            _make_compacted(system, topic)
            wait_until(
                lambda: _cleaned_to(system, topic) >= bases[-1],
                f"{system.name}: compaction of {topic}",
                timeout_seconds=bench.timeout,
                every_seconds=0.1,
            )
            seconds = time.monotonic() - began
            steady.tell("after")
            figures = steady.end()
        kept = sum(_segment(folder, base).stat().st_size for base in _sealed(folder) if base < bases[-1])
        return {**figures, "megabytes_per_s": dirty / seconds / (1 << 20), "kept_share": kept / dirty}

    def after(self, bench: Bench, number: int) -> None:
        bench.system.delete_topic(f"{STEADY_TOPIC}-{topic_of(number)}")
        bench.system.delete_topic(topic_of(number))


def _spin(seconds: float) -> None:
    """Keep a core busy, to measure the effect on the client that does not come from the broker."""
    subprocess.run([sys.executable, "-c", _SPINNING, str(CLEANER_NICENESS), str(seconds)], check=True)


def _make_compacted(system: System, topic: str) -> None:
    with BlockingClient(system.bootstrap) as client:
        change = ConfigChange(name="cleanup.policy", value="compact")
        client.admin.incremental_alter_configs({ConfigResource.topic(topic): [change]})


def _sealed(folder: Path) -> list[int]:
    """Return the base offsets of the segments, ascending; the last one is the active segment."""
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def _segment(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.log"


def _cleaned_to(system: System, topic: str) -> int:
    """Return the clean offset of the log in the checkpoint; -1 if it has none."""
    system.check()
    path = system.log_folders[0] / _CHECKPOINT
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return -1
    rows = [line.split() for line in lines[2:]]
    return next((int(row[2]) for row in rows if row[:2] == [topic, "0"]), -1)
