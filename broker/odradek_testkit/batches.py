"""Record batches for tests: iteration over whole batches, and their records through the decoder in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.base.ports import Buffer
from odradek.records.frame_columns import (
    ALL_FIELDS,
    MAX_OFFSET,
    FrameColumns,
    FrameDecoder,
    Pieces,
    RecordFields,
    Spans,
)
from odradek.records.v2.batch import HEADER_SIZE, BatchHeader, TimestampType, read_header
from odradek.records.v2.record import Record


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


def frame_records(
    raw: bytes,
    *,
    fields: RecordFields = ALL_FIELDS,
    rows: int = 10_000,
    limit: int = 1 << 20,
    start_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    aborted: Sequence[tuple[int, int]] = (),
    check_crcs: bool = True,
) -> list[Record]:
    """Return the records, and assert that all columns are in bounds. Fields without a value are None, -1 or empty."""
    decoder = FrameDecoder(fields, rows=rows, limit=limit, check_crcs=check_crcs)
    found: list[Record] = []
    for columns in decoder.decode(raw, start_offset=start_offset, end_offset=end_offset, aborted=aborted):
        assert 0 < len(columns) <= rows
        found += records_of(columns)
    return found


def records_of(columns: FrameColumns) -> list[Record]:
    """Return the records of columns."""
    count = len(columns)
    keys, values = _pieces(columns, columns.key, count), _pieces(columns, columns.value, count)
    timestamps = [-1] * count if columns.timestamp_ms is None else columns.timestamp_ms.tolist()
    types = [TimestampType(number) for number in columns.timestamp_type.tolist()]
    headers = _headers(columns, count)
    return [Record(*row) for row in zip(columns.offset.tolist(), timestamps, keys, values, headers, types, strict=True)]


def _pieces(columns: FrameColumns, spans: Pieces | None, count: int) -> list[bytes | None]:
    if spans is None:
        return [None] * count
    size = len(columns.buffer)
    pieces: list[bytes | None] = []
    for start, length in zip(spans.start.tolist(), spans.length.tolist(), strict=True):
        assert length == -1 or 0 <= start <= start + length <= size
        pieces.append(None if length < 0 else columns.buffer[start : start + length].tobytes())
    return pieces


def _headers(columns: FrameColumns, count: int) -> list[tuple[tuple[str, bytes | None], ...]]:
    headers = columns.headers
    if headers is None:
        return [()] * count
    rows = int(headers.count.sum())
    names = _pieces(columns, Spans(headers.name_start, headers.name_length), rows)
    values = _pieces(columns, Spans(headers.value_start, headers.value_length), rows)
    pairs = iter([((name or b"").decode(errors="replace"), value) for name, value in zip(names, values, strict=True)])
    return [tuple(next(pairs) for _ in range(number)) for number in headers.count.tolist()]
