"""The results of calls of the producer, which batches complete when they are acknowledged or fail."""

from __future__ import annotations

import asyncio
from typing import Final

from odradek.base.errors import OdradekError
from odradek.client.models import BatchMetadata, RecordMetadata, SendResult


class SingleReceipt:
    """The result of one `send`."""

    __slots__ = ("_future", "_place", "_timestamp_ms")

    def __init__(self, future: asyncio.Future[RecordMetadata], place: int, timestamp_ms: int) -> None:
        """`place` is the index of the record in its batch."""
        self._future = future
        self._place = place
        self._timestamp_ms = timestamp_ms

    def acknowledged(self, batch: BatchMetadata) -> None:
        """Handle that the batch was acknowledged."""
        if self._future.done():
            return
        offset = batch.base_offset + self._place if batch.base_offset >= 0 else -1
        timestamp = batch.timestamp if batch.timestamp >= 0 else self._timestamp_ms
        self._future.set_result(RecordMetadata(batch.topic, batch.partition, offset, timestamp))

    def failed(self, error: OdradekError) -> None:
        """Handle that the batch failed."""
        if not self._future.done():
            self._future.set_exception(error)


class BulkReceipt:
    """The result of one `send_many`, shared by the batches that contain its records."""

    __slots__ = ("_batches", "_expected", "_records", "future")

    def __init__(self, future: asyncio.Future[SendResult]) -> None:
        """No batch is expected at first."""
        self.future: Final = future
        self._expected = 0
        self._records: int | None = None
        self._batches: list[BatchMetadata] = []

    def expect(self) -> None:
        """Count one more batch that contains records of this call."""
        self._expected += 1

    def complete(self, records: int) -> None:
        """Note that all records are in batches. `records` is their number."""
        self._records = records
        self._check()

    def acknowledged(self, batch: BatchMetadata) -> None:
        """Handle that the batch was acknowledged."""
        self._batches.append(batch)
        self._check()

    def failed(self, error: OdradekError) -> None:
        """Handle that the batch failed."""
        if not self.future.done():
            self.future.set_exception(error)

    def _check(self) -> None:
        if self._records is not None and len(self._batches) == self._expected and not self.future.done():
            self.future.set_result(SendResult(self._records, tuple(self._batches)))


class Countdown:
    """The result of a `flush`: complete when every batch was acknowledged or failed."""

    __slots__ = ("_future", "_left")

    def __init__(self, future: asyncio.Future[None], batches: int) -> None:
        """`batches` is their number."""
        self._future = future
        self._left = batches

    def acknowledged(self, batch: BatchMetadata) -> None:
        """Handle that the batch was acknowledged."""
        self._ended()

    def failed(self, error: OdradekError) -> None:
        """Handle that the batch failed."""
        self._ended()

    def _ended(self) -> None:
        self._left -= 1
        if self._left == 0 and not self._future.done():
            self._future.set_result(None)
