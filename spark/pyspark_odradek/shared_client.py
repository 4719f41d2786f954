"""The clients that planning and tasks share: one per process and set of settings.

Spark reuses Python workers, so connections and metadata outlive a task. Invariants: a forked worker opens its own
connections; at most `MOST_CLIENTS` clients stay connected, and none that was not requested for `IDLE_SECONDS`. A client
that was disconnected connects again if it is still used.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from odradek.client.blocking.client import BlockingClient
from odradek.client.settings import ClientSettings

MOST_CLIENTS: Final = 16
IDLE_SECONDS: Final = 300.0


class ClientCache:
    """Clients by settings, the one that was requested last at the end."""

    def __init__(
        self,
        create: Callable[[ClientSettings], BlockingClient] = BlockingClient,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an empty cache."""
        self._create: Final = create
        self._now: Final = now_seconds
        self._lock: Final = threading.Lock()
        self._clients: dict[ClientSettings, tuple[BlockingClient, float]] = {}

    def get(self, settings: ClientSettings) -> BlockingClient:
        """Return the client for `settings`, and disconnect those that are idle or too many."""
        now = self._now()
        with self._lock:
            known = self._clients.pop(settings, None)
            client = self._create(settings) if known is None else known[0]
            self._clients[settings] = (client, now)
            evicted = self._evict(now)
        for each in evicted:
            each.disconnect()
        return client

    def _evict(self, now: float) -> list[BlockingClient]:
        evicted = []
        for settings, (client, requested) in list(self._clients.items()):
            if len(self._clients) <= MOST_CLIENTS and now - requested < IDLE_SECONDS:
                break
            del self._clients[settings]
            evicted.append(client)
        return evicted


_cache = ClientCache()


def _after_fork() -> None:
    # The lock may be held by a thread of the parent. Clients detect the fork themselves.
    global _cache
    _cache = ClientCache()


os.register_at_fork(after_in_child=_after_fork)


RACK_VARIABLE: Final = "ODRADEK_CLIENT_RACK"
"""Environment variable with the rack of this process, for queries without the option kafka.client.rack. On Kubernetes,
executors get it from the zone of their node, see docs/design/0029."""


def with_rack(settings: ClientSettings, environment: Mapping[str, str] = os.environ) -> ClientSettings:
    """Return the settings with the rack of this process, unless they have one. Executors run in different zones, so the
    driver cannot decide it for them."""
    rack = environment.get(RACK_VARIABLE, "")
    return settings.replace(client_rack=rack) if rack and not settings.client_rack else settings


def shared_client(settings: ClientSettings) -> BlockingClient:
    """Return the client of this process for `settings`, which planning and tasks share; a forked worker gets its own.

    A function of a module, because readers refer to it, and pickle stores such a function by its name.
    """
    return _cache.get(with_rack(settings))
