"""The brokers that are registered in ZooKeeper, as a producer sees them: always the current ones, by a watch."""

from __future__ import annotations

from typing import Final

from odradek.base.errors import NetworkError
from odradek.client.blocking import loop_thread
from odradek.zk import layout
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import Watch, ZkClient, ZkError, ZkSettings
from odradek.zk.registration import registered_brokers


async def registered_addresses(zk: ZkClient, security_protocol: str) -> tuple[str, ...]:
    """Return host:port of the listeners with a security protocol, of all brokers that are registered."""
    return tuple(
        f"{end.host}:{end.port}"
        for registration in (await registered_brokers(zk)).values()
        for end in registration.endpoints
        if end.security_protocol == security_protocol
    )


class BrokerDiscovery:
    """Knows the addresses of the brokers. Threads use it."""

    def __init__(self, connect: str, security_protocol: str) -> None:
        """Raises `ZkError` if ZooKeeper does not answer, and `NetworkError` if no broker has such a listener."""
        self._protocol: Final = security_protocol
        self._loop: Final = loop_thread.current()
        self._zk: Final = self._loop.call(lambda: KazooZkClient(ZkSettings(connect=connect)))
        self._watch: Watch | None = None
        self._addresses: tuple[str, ...] = ()
        self._is_stale = True
        try:
            self._loop.run(self._start())
        except BaseException:
            self.close()
            raise
        if not self.addresses():
            self.close()
            raise NetworkError(f"no broker with a listener for {security_protocol} is registered in {connect}")

    async def _start(self) -> None:
        await self._zk.start()
        self._watch = self._zk.watch_children(layout.BROKER_IDS, self._changed)

    def _changed(self) -> None:
        self._is_stale = True

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses, from ZooKeeper if brokers were registered or removed since the last call. While
        ZooKeeper cannot be reached, they are the last known ones."""
        if self._is_stale:
            self._loop.run(self._read())
        return self._addresses

    async def _read(self) -> None:
        self._is_stale = False
        try:
            self._addresses = await registered_addresses(self._zk, self._protocol)
        except ZkError:
            self._is_stale = True
            if not self._addresses:
                raise

    def close(self) -> None:
        """End the session."""
        self._loop.run(self._zk.close())
