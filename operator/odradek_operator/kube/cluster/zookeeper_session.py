"""The operator's ZooKeeper session of one cluster, opened when it is first needed. Its watches only wake the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek.zk.client import KazooZkClient
from odradek.zk.layout import BROKER_IDS, CONTROLLER, DELETE_TOPICS, REASSIGN_PARTITIONS, TOPICS
from odradek.zk.port import SessionState, ZkClient, ZkSettings

_CONNECT_MS = 8_000
_SESSION_MS = 15_000
_SUSPENDED_MS = 4_000


Opener = Callable[[ZkSettings], Awaitable[ZkClient]]
"""Returns a connected client, or raises `ZkError`."""


async def open_kazoo(settings: ZkSettings) -> ZkClient:
    """Return a client for a real ensemble."""
    client = KazooZkClient(settings)
    try:
        await client.start()
    except BaseException:
        await client.close()
        raise
    return client


class ZooKeeperSession:
    """The ZooKeeper session of one cluster's loop."""

    def __init__(self, wake: Callable[[], None], opened: Opener) -> None:
        """`wake` is called when brokers, topics, the controller or reassignments change."""
        self._wake = wake
        self._opened = opened
        self._connect = ""
        self._client: ZkClient | None = None

    async def client(self, connect: str) -> ZkClient:
        """Return the connected client. Raises `ZkError` if ZooKeeper does not answer in time."""
        if self._client is not None and (connect != self._connect or self._client.state is SessionState.CLOSED):
            await self.close()
        if self._client is None:
            client = await self._opened(
                ZkSettings(
                    connect=connect,
                    session_timeout_ms=_SESSION_MS,
                    connection_timeout_ms=_CONNECT_MS,
                    suspended_wait_ms=_SUSPENDED_MS,
                )
            )
            client.watch_children(BROKER_IDS, self._wake)
            client.watch_children(TOPICS, self._wake)
            client.watch_children(DELETE_TOPICS, self._wake)
            client.watch_data(CONTROLLER, self._wake)
            client.watch_data(REASSIGN_PARTITIONS, self._wake)
            self._connect, self._client = connect, client
        return self._client

    async def close(self) -> None:
        """Close the session. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
