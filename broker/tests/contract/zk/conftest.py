"""Fixtures for the tests of the ZooKeeper port: a separate path on a real server, and an awaitable callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest

from odradek.zk.port import ZkClient


class Signal:
    """A callback that counts its calls, and can be awaited until its watch is registered again."""

    def __init__(self, client: ZkClient) -> None:
        self.count = 0
        self._client = client
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._event.set()

    async def reaches(self, count: int) -> None:
        while self.count < count:
            self._event.clear()
            await self._event.wait()
        await self.settle()

    async def settle(self) -> None:
        """Return when all earlier writes were notified and the watches are registered again.

        The server answers a read after these notifications. The second read is for watches whose registration takes
        two requests.
        """
        await self._client.exists("/")
        await self._client.exists("/")


@pytest.fixture
def connect_string(odradek_zookeeper: str) -> str:
    return f"{odradek_zookeeper}/{uuid4().hex}/deep"


@pytest.fixture
def signal_of() -> Callable[[ZkClient], Signal]:
    return Signal
