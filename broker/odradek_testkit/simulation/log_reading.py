"""Reads the logs of simulated brokers directly, without a client.

`verdict` and the checks of transactions use it. Invariant: reading changes nothing.
"""

from __future__ import annotations

from typing import Final

from odradek.log.partition_log import PartitionLog
from odradek_testkit.batches import iterate
from odradek_testkit.simulation.errors import Violation

UNPACKED_BYTES: Final = 1 << 24
"""Limit of the size of a decompressed batch."""
_READ_BYTES: Final = 1 << 26


def read_batches(log: PartitionLog, end: int) -> list[tuple[int, bytes]]:
    """Return base offset and bytes of each batch below `end`."""
    found = []
    offset = log.log_start_offset
    while offset < end:
        data = log.read(offset, max_bytes=_READ_BYTES, max_offset=end).load()
        before = offset
        for position, header in iterate(data):
            found.append((header.base_offset, data[position : position + header.size]))
            offset = header.next_offset
        if offset == before:
            raise Violation("log-readable", f"{log.topic_partition} returns nothing at {offset}, but ends at {end}")
    return found
