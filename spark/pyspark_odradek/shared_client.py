"""The clients that planning and tasks share: one per process and set of settings.

Spark reuses Python workers, so connections and metadata outlive a task. Invariant: a forked worker opens its own
connections.
"""

from __future__ import annotations

from odradek.client.blocking.client import BlockingClient
from odradek.client.settings import ClientSettings


def shared_client(settings: ClientSettings) -> BlockingClient:
    """Return the client of this process for `settings`, which planning and tasks share; a forked worker gets its own.

    A function of a module, because readers refer to it, and pickle stores such a function by its name.
    """
    return BlockingClient.shared(settings)
