"""The producers that the tasks of a worker share: one per process and settings.

Spark reuses Python workers, so a producer with its connections outlives a task. Invariant: a forked worker never uses
a producer of its parent.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Final

from odradek.client.blocking import loop_thread
from odradek.client.blocking.blocking_producer import BlockingProducer
from odradek.client.settings import ClientSettings

MOST_PRODUCERS: Final = 4
"""Producers that a worker keeps. The one that was not used for the longest time is closed first."""


class SharedProducers:
    """Producers by settings. Any thread can use them."""

    def __init__(self) -> None:
        """No producer exists at first."""
        self._lock = threading.Lock()
        self._producers: OrderedDict[ClientSettings, BlockingProducer] = OrderedDict()

    def get(self, settings: ClientSettings) -> BlockingProducer:
        """Return the producer for `settings`. Raises `NetworkError` if no bootstrap server answers."""
        surplus = []
        with self._lock:
            producer = self._producers.get(settings)
            if producer is None:
                producer = self._producers[settings] = BlockingProducer(settings)
            self._producers.move_to_end(settings)
            while len(self._producers) > MOST_PRODUCERS:
                surplus.append(self._producers.popitem(last=False)[1])
        for other in surplus:
            other.close()
        return producer

    def discard(self, settings: ClientSettings) -> None:
        """Close the producer for `settings` without waiting, so that the next task gets a new one."""
        with self._lock:
            producer = self._producers.pop(settings, None)
        if producer is not None:
            producer.close(timeout_ms=0)


_shared = SharedProducers()


def shared_producers() -> SharedProducers:
    """Return the producers of this process."""
    return _shared


def _after_fork() -> None:
    global _shared
    loop_thread.abandon(_shared)
    _shared = SharedProducers()


os.register_at_fork(after_in_child=_after_fork)
