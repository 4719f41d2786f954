"""Measures the time per record of everything that reads the records of a batch.

Run by hand: `python broker/tests/bench/record_walks.py`. Batches of several numbers and sizes of records are checked as
on Produce, read as `Record` objects, decoded to columns, and converted to format 1. The values of a batch have one
size, or sizes from half of it to one and a half of it (`±`), because the fast paths for similar records apply only to
the first. Prints the minimum of many runs in nanoseconds of CPU per record. To compare two versions, run them in turn
on a quiet machine.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

from odradek.records import columns
from odradek.records.checks.structure import check_records
from odradek.records.checks.validate import AppendRules
from odradek.records.conversion.down import down
from odradek.records.v2.batch import HEADER_SIZE, BatchBuilder, BatchHeader, read_header
from odradek.records.v2.record import decode_batch

NOW_MS = 1_700_000_000_000
LIMIT = 64 << 20
RUN_NS = 120_000_000
"""Duration of the runs of each figure."""

COUNTS = (1, 10, 200, 10_000)
SIZES = (10, 100, 1000)


def built(count: int, size: int, *, vary: bool) -> bytes:
    """Return a batch with a new millisecond every 100 records."""
    source = random.Random(7)
    builder = BatchBuilder(limit_bytes=LIMIT)
    for number in range(count):
        length = source.randint(size // 2, size * 3 // 2) if vary else size
        builder.append(b"key-%05d" % number, source.randbytes(length), timestamp_ms=NOW_MS + number // 100)
    return builder.build()


def best_ns(action: Callable[[], object], count: int) -> float:
    """Return the minimum CPU time per record."""
    least = float("inf")
    end = time.process_time_ns() + RUN_NS
    while (begin := time.process_time_ns()) < end:
        action()
        least = min(least, time.process_time_ns() - begin)
    return least / count


def actions(raw: bytes, header: BatchHeader) -> dict[str, Callable[[], object]]:
    """Return what is measured, by the head of its column."""
    view = memoryview(raw)
    section, rules = view[HEADER_SIZE:], AppendRules(LIMIT, NOW_MS)
    return {
        "check": lambda: check_records(section, header, rules),
        "records": lambda: decode_batch(raw, 0, header, limit=LIMIT),
        "columns": lambda: columns.decode([(header, section)]),
        "down": lambda: down(view, magic=1),
    }


def main() -> None:
    """Print the table."""
    write = sys.stdout.write
    for vary in (False, True):
        for size in SIZES:
            for count in COUNTS:
                raw = built(count, size, vary=vary)
                chosen = actions(raw, read_header(raw))
                row = [f"{name} {best_ns(action, count):8.1f}" for name, action in chosen.items()]
                write(f"{'±' if vary else ' '}{size:5} B × {count:6}: {'  '.join(row)}\n")


if __name__ == "__main__":
    main()
