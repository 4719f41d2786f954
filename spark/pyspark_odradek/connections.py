"""The connections of a process: one client for each set of settings, kept between tasks and micro-batches.

Settings enter; a client that nobody closes leaves. Planning and tasks call it. A plain function of a module, because
readers carry it to the workers and a pickle names such a function instead of copying it with all that it refers to.
"""

from __future__ import annotations

from odradek.client.blocking.client import BlockingClient
from odradek.client.settings import ClientSettings


def shared_client(settings: ClientSettings) -> BlockingClient:
    """This process's client for `settings`; a forked worker gets its own."""
    return BlockingClient.shared(settings)
