"""What the suites of the ZooKeeper port share: a place of their own in a real server, and a callback to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest

from odradek.zk.port import ZkClient


class Signal:
    """A callback that counts and can be awaited, until the watch that called it is armed again."""

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
        """Return when all is told, and armed again, that was written before: a read is answered after it.

        The second read is for watches that take two requests to arm.
        """
        await self._client.exists("/")
        await self._client.exists("/")


@pytest.fixture
def connect_string(odradek_zookeeper: str) -> str:
    return f"{odradek_zookeeper}/{uuid4().hex}/deep"


@pytest.fixture
def signal_of() -> Callable[[ZkClient], Signal]:
    return Signal
