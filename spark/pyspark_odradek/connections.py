"""The clients of a process: one for each set of settings, kept between tasks and micro-batches.

Planning and tasks use it. It is a module-level function, because readers refer to it, and pickle stores the name of
such a function instead of a copy of its objects.
"""

from __future__ import annotations

from odradek.client.blocking.client import BlockingClient
from odradek.client.settings import ClientSettings


def shared_client(settings: ClientSettings) -> BlockingClient:
    """Return this process's client for `settings`; a forked worker gets its own."""
    return BlockingClient.shared(settings)
