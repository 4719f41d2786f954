"""Polls the ISR of the partitions of a topic, as brokers report it, while a test runs.

Records the smallest ISR that was reported. Used by tests that restart brokers and operators. If a broker does not
answer or reports no leader yet, the poll is repeated: only reported sets count.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

_POLL_SECONDS: Final = 0.25
_CALL_SECONDS: Final = 5.0


def in_sync(admin: AdminClient, topic: str) -> dict[int, tuple[int, ...]]:
    """The ISR of each partition. Raise `KafkaException` if no broker answers."""
    found = admin.list_topics(topic, timeout=_CALL_SECONDS).topics[topic]
    return {number: tuple(sorted(partition.isrs)) for number, partition in found.partitions.items()}


def replicas(admin: AdminClient, topic: str) -> dict[int, tuple[int, ...]]:
    """The brokers with a replica, by partition. Raise `KafkaException` if no broker answers."""
    found = admin.list_topics(topic, timeout=_CALL_SECONDS).topics[topic]
    return {number: tuple(partition.replicas) for number, partition in found.partitions.items()}


class InSyncWatch:
    """The smallest ISR so far."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._admin: Final = AdminClient({"bootstrap.servers": bootstrap})
        self._topic: Final = topic
        self._ended: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._look, name="in-sync sets", daemon=True)
        self.smallest: tuple[int, ...] | None = None
        self.answers = 0
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            try:
                seen = in_sync(self._admin, self._topic)
            except KafkaException:
                continue  # no broker answered this time
            for members in seen.values():
                self.answers += 1
                if self.smallest is None or len(members) < len(self.smallest):
                    self.smallest = members

    def end(self) -> None:
        """Stop polling."""
        self._ended.set()
        self._thread.join()


@contextmanager
def in_sync_watched(bootstrap: str, topic: str) -> Iterator[InSyncWatch]:
    """Poll the ISR for the duration of the block."""
    watch = InSyncWatch(bootstrap, topic)
    try:
        yield watch
    finally:
        watch.end()
