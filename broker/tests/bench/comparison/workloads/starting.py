"""Starting: the time until a broker with much data serves again."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from comparison import loading
from comparison.batches import batch
from comparison.figures import Figures
from comparison.systems import System
from comparison.waiting import TooLateError, pause
from comparison.wire import Connection, produce_frame, produce_result
from comparison.workloads.base import Bench, Workload, at_least
from odradek.base.types import TopicPartition

TOPIC: Final = "full"
RECORD_BYTES: Final = 1000
BATCH_RECORDS: Final = 100
_PROBE_SECONDS: Final = 0.01
_PROBE_TIMEOUT_SECONDS: Final = 5.0
_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
"""The checkpoint of recovery points. A start raises all recovery points, which would make the next recovery faster.
Therefore each run gets the checkpoint that the first crash left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Workload):
    """Time from the start of the process until clients are served."""

    log_bytes: int
    partitions: int
    crash: bool
    """SIGKILL instead of a clean stop. Nothing was flushed, so the recovery scans the whole log."""

    def scaled(self, scale: float) -> Self:
        return replace(self, log_bytes=at_least(self.partitions << 16, self.log_bytes * scale))

    def prepare(self, bench: Bench) -> None:
        bench.system.create_topic(TOPIC, self.partitions)
        loading.fill(
            bench.system.first,
            TOPIC,
            self.partitions,
            records=self.log_bytes // RECORD_BYTES,
            record_bytes=RECORD_BYTES,
            batch_records=BATCH_RECORDS,
        )

    def before(self, bench: Bench, number: int) -> None:
        system = bench.system
        if not self.crash:
            system.stop_brokers()
            return
        system.kill_brokers()
        system.wait_until_forgotten()
        for folder in system.log_folders:
            kept = folder.with_name("kept-checkpoint")
            if kept.exists():
                shutil.copyfile(kept, folder / _CHECKPOINT)
            else:
                _keep(folder / _CHECKPOINT, kept)

    def run(self, bench: Bench, number: int) -> Figures:
        return _timed_start(bench.system, self.partitions, bench.timeout)


def _keep(checkpoint: Path, kept: Path) -> None:
    """Save the checkpoint; a log that was never flushed has no entry in it."""
    content = checkpoint.read_bytes() if checkpoint.exists() else b"0\n0\n"
    kept.write_bytes(content)


def _timed_start(system: System, partitions: int, timeout: float) -> Figures:
    """Start the broker and send requests until all succeed: metadata, then a record, then all leaders."""
    began = time.monotonic()
    system.start_brokers()
    figures: dict[str, float] = {}
    frame = produce_frame(TopicPartition(TOPIC, 0), batch(b"x", 1, timestamp_ms=int(time.time() * 1000)))
    while "leaders_s" not in figures or "start_s" not in figures:
        passed = time.monotonic() - began
        if passed > timeout:
            raise TooLateError(f"{system.name}: start: not within {timeout:g} s, only {figures}")
        system.check()
        try:
            with Connection(system.first, timeout_seconds=_PROBE_TIMEOUT_SECONDS) as connection:
                _probe(connection, frame, partitions, began, figures)
        except OSError:
            pause(_PROBE_SECONDS)
    return figures


def _probe(connection: Connection, frame: bytes, partitions: int, began: float, figures: dict[str, float]) -> None:
    """Send requests over one connection until all succeed. Raises `OSError` if the broker is not ready."""
    while "leaders_s" not in figures or "start_s" not in figures:
        rows = connection.metadata([TOPIC]).topics[0].partitions
        figures.setdefault("metadata_s", time.monotonic() - began)
        if len(rows) == partitions and all(row.leader_id >= 0 for row in rows):
            figures.setdefault("leaders_s", time.monotonic() - began)
        if "start_s" not in figures:
            code, _ = produce_result(connection.call(frame), TOPIC)
            if not code:
                figures["start_s"] = time.monotonic() - began
        pause(_PROBE_SECONDS)
