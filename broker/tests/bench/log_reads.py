"""Measures the time of one read of a log whose records are in memory, as each partition of a Fetch request needs it.

Run by hand: `python broker/tests/bench/log_reads.py`, after `make compiled` with `PYTHONPATH=.compiled`. Prints the
minimum of many runs in nanoseconds of CPU per read, including one system call that reads the headers of batches. To
compare two versions, run them in turn on a quiet machine.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable

from odradek.base.build_form import build_form
from odradek.base.system_ports import SystemClock, SystemFiles
from odradek.log.partition_log import PartitionLog
from odradek_testkit.logs import batch, open_log, small_segments

BATCHES = 2000
SEGMENT_BYTES = 100_000
MAX_BYTES = 1 << 20
READS = 200
"""Reads in each run."""

TOTAL_NS = 2_000_000_000
"""Duration of the runs of each figure."""


def filled(directory: str) -> PartitionLog:
    """Return a log with several segments, whose batches have one record of 100 bytes."""
    log = open_log(
        SystemFiles(),
        SystemClock(),
        config=small_segments(segment_bytes=SEGMENT_BYTES, index_interval_bytes=0),
        directory=f"{directory}/events-0",
    )
    for number in range(BATCHES):
        log.append_as_leader(batch(bytes(100), timestamp_ms=number), leader_epoch=0)
    return log


def best_ns(action: Callable[[], object]) -> float:
    """Return the minimum CPU time per read."""
    least = float("inf")
    end = time.process_time_ns() + TOTAL_NS
    while (begin := time.process_time_ns()) < end:
        for _ in range(READS):
            action()
        least = min(least, time.process_time_ns() - begin)
    return least / READS


def main() -> None:
    """Print one line for each kind of read."""
    with tempfile.TemporaryDirectory() as directory:
        log = filled(directory)
        end = log.log_end_offset
        log.read(10, max_bytes=MAX_BYTES)  # Loads the first segment.
        read = log.read
        cases: dict[str, Callable[[], object]] = {
            "the last batch": lambda: read(end - 1, max_bytes=MAX_BYTES, waits=False),
            "below a high watermark that did not change": lambda: read(
                end - 20, max_bytes=MAX_BYTES, max_offset=end - 10, waits=False
            ),
            "a sealed segment": lambda: read(10, max_bytes=MAX_BYTES, waits=False),
            "nothing below the high watermark": lambda: read(end, max_bytes=MAX_BYTES, waits=False),
        }
        sys.stdout.write(f"{build_form()} core, CPU ns per read\n")
        for name, action in cases.items():
            sys.stdout.write(f"{name:44s}{best_ns(action):10.0f}\n")


if __name__ == "__main__":
    main()
