"""Sends rows of mirrored files to a topic, in the tasks of `mirror_from_files`.

The sink cannot be used here, because Spark's sinks for topics have no column for the timestamp.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import groupby, islice
from typing import Any, Final

from odradek.client.blocking.blocking_producer import BlockingProducer
from odradek.client.settings import ClientSettings
from pyspark_odradek.shared_client import shared_client

COLUMNS: Final = ("topic", "partition", "key", "value", "timestamp_ms", "headers")
"""The columns of the rows. Headers are a list of rows with key and value, or None."""
_CHUNK: Final = 1000
_IN_FLIGHT: Final = 2000
"""Maximum number of calls whose records are not acknowledged yet."""


class MirrorSender:
    """A function for `mapPartitions`: sends all rows of a task in their order, and returns their number."""

    def __init__(self, settings: ClientSettings, *, topic: str | None, by_key: bool) -> None:
        """`topic` replaces the topics of the rows. With `by_key`, the key chooses the partition instead of the row."""
        self._settings = settings
        self._topic = topic
        self._by_key = by_key

    def __call__(self, rows: Iterable[Any]) -> Iterator[int]:
        """Send the rows. Returns when all are acknowledged; raises the first error."""
        records = 0
        in_flight: deque[Future[Any]] = deque()
        with shared_client(self._settings).producer() as producer:
            for (topic, partition), same in groupby(rows, key=lambda row: (row.topic, row.partition)):
                while chunk := list(islice(same, _CHUNK)):
                    records += len(chunk)
                    in_flight.extend(self._send(producer, self._topic or topic, partition, chunk))
                    while len(in_flight) > _IN_FLIGHT:
                        in_flight.popleft().result()
            producer.flush()
            for sent in in_flight:
                sent.result()
        yield records

    def _send(self, producer: BlockingProducer, topic: str, partition: int, rows: list[Any]) -> Iterator[Future[Any]]:
        chosen = None if self._by_key else partition
        if not any(row.headers for row in rows):
            triples = [(_bytes(row.key), _bytes(row.value), row.timestamp_ms) for row in rows]
            yield producer.send_many(topic, triples, partition=chosen)
            return
        for row in rows:
            yield producer.send(
                topic,
                _bytes(row.value),
                key=_bytes(row.key),
                partition=chosen,
                timestamp_ms=row.timestamp_ms,
                headers=[(header.key, _bytes(header.value)) for header in row.headers or ()],
            )


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    """Spark's rows have byte arrays."""
    return None if value is None else bytes(value)
