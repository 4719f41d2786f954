"""Measures the cost of validating every record of an append.

Run by hand: `python broker/tests/bench/record_validation.py`. Appends batches of 128 KiB to a log on a real disk (page
cache; nothing is synced), alternately with `log.record.validation` full and batch, and prints the CPU time of each and
the difference per record. The records have one size, varying sizes, or random bytes, which the validation by columns
treats differently; the last column is the validation record by record, without numpy. Compare the values of one run
only.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from unittest import mock

from odradek.base.config import TopicConfig
from odradek.base.system_ports import SystemFiles
from odradek.log.partition_log import PartitionLog
from odradek.log.recovery.log_recovery import LoadRequest, load
from odradek.log.values import LogContext
from odradek.records.checks import structure
from odradek.records.v2.batch import BatchBuilder, read_header
from odradek_testkit.logs import TP, RecordingHost
from odradek_testkit.loop import ManualClock

BATCH_BYTES = 128 * 1024
APPENDS = 60
ROUNDS = 8
NOW_MS = 1_700_000_000_000

Value = Callable[[random.Random], bytes]
KINDS: dict[str, Value] = {
    "100 B": lambda source: b"x" * 100,
    "50..150 B": lambda source: b"x" * source.randint(50, 150),
    "100 B of noise": lambda source: source.randbytes(100),
    "1000 B": lambda source: b"x" * 1000,
    "20 B": lambda source: b"x" * 20,
}


def built(value: Value) -> bytes:
    """Return a full batch with a hundred records per millisecond."""
    source = random.Random(5)
    builder = BatchBuilder(limit_bytes=BATCH_BYTES)
    while builder.append(None, value(source), timestamp_ms=NOW_MS + builder.record_count // 100):
        pass
    return builder.build()


def new_log(directory: str, *, validate_records: bool) -> PartitionLog:
    """Create an empty log on the disk."""
    files, clock, config = SystemFiles(), ManualClock(), TopicConfig()
    files.make_directories(directory)
    host = RecordingHost(files)
    context = LogContext(files=files, clock=clock, host=host, validate_records=validate_records)
    request = LoadRequest(topic_partition=TP, directory=directory, config=config, now_ms=clock.wall_ms())
    return PartitionLog(context, load(files, request), config, None)


def cpu_us(log: PartitionLog, raw: bytes) -> float:
    """Return the minimum CPU time of an append in microseconds."""
    least = 1 << 62
    for _ in range(APPENDS):
        records = memoryview(bytearray(raw))
        begin = time.process_time_ns()
        log.append_as_leader(records, leader_epoch=1)
        least = min(least, time.process_time_ns() - begin)
    log.truncate_fully_and_start_at(0)
    return least / 1000


def measured(raw: bytes, directory: str) -> Iterator[float]:
    """Return the minimum CPU times of batch validation, full validation, and full validation record by record."""
    logs = [new_log(f"{directory}/{name}-0", validate_records=name != "batch") for name in ("batch", "full", "single")]
    best = [float("inf")] * len(logs)
    for _ in range(ROUNDS):
        for place, log in enumerate(logs):
            without_columns = place == len(logs) - 1
            surveyed = 1 << 31 if without_columns else structure.SURVEYED_COUNT
            with mock.patch.object(structure, "SURVEYED_COUNT", surveyed):
                best[place] = min(best[place], cpu_us(log, raw))
    for log in logs:
        log.abandon()
    return iter(best)


def main() -> None:
    """Print the table."""
    write = sys.stdout.write
    write(f"{'records':18}{'a batch':>9}{'batch us':>10}{'full us':>10}{'ns/record':>11}{'one by one ns':>15}\n")
    for name, value in KINDS.items():
        raw = built(value)
        count = read_header(raw).record_count
        with tempfile.TemporaryDirectory() as directory:
            batch, full, single = measured(raw, directory)
        more, singly = (full - batch) / count * 1000, (single - batch) / count * 1000
        write(f"{name:18}{count:9}{batch:10.1f}{full:10.1f}{more:11.1f}{singly:15.1f}\n")


if __name__ == "__main__":
    main()
