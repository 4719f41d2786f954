"""Record batches for tests: iteration over whole batches."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.base.ports import Buffer
from odradek.records.v2.batch import HEADER_SIZE, BatchHeader, read_header


def iterate(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch; stops before an incomplete one, as fetches may truncate it."""
    position = 0
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        following = position + header.size
        if following > end:
            return
        yield position, header
        position = following
