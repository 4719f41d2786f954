"""A broker's server in memory with a real controller, so that admin requests are carried out in ZooKeeper.

`ReigningServer` is a `MemoryServer` that registers in its ZooKeeper in memory, is elected as controller, and receives
the controller's requests through its own connections. It serves every API like a cluster of one broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from odradek.base.ports import Buffer
from odradek.base.types import Endpoint
from odradek.controller.controller_runtime import ControllerRuntime
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.server.admin.elections import ElectionHandlers
from odradek.server.dispatch import Dispatcher, Handler
from odradek.server.senders import ControllerCheck
from odradek.zk.layout import BrokerRegistration
from odradek.zk.registration import BrokerRegistrar, prepare
from odradek_testkit.server import BROKER_ID, LISTENER, MemoryServer, Peer


class _Channel:
    """The controller's connection to the server."""

    client_id = "controller"
    is_open = True

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def pick(self, api_key: ApiKey) -> int:
        return API_TABLE[api_key].max_version

    async def ask(self, api_key: ApiKey, version: int, message: Message) -> Any:
        return await self._peer.ask(api_key, version, message)

    async def call(self, encode: Callable[[int], Sequence[Buffer]]) -> memoryview:
        return memoryview(await self._peer.send(b"".join(encode(1))))[4:]

    async def close(self) -> None:
        self._peer.close()


class ReigningServer(MemoryServer):
    """Broker 1: the only broker of its cluster, registered and the controller."""

    runtime: ControllerRuntime

    def _dispatcher(self, replace: Mapping[ApiKey, Handler]) -> Dispatcher:
        self.runtime = ControllerRuntime(self.zk, self.clock, self.config, connect=self._open)
        self.controller = cast(Any, self.runtime)
        self.elections = ElectionHandlers(controller=self.runtime, view=self.view, clock=self.clock)
        return super()._dispatcher(replace)

    def _controllers(self) -> ControllerCheck:
        return ControllerCheck(self.zk, self.clock, broker_id=BROKER_ID)

    async def _open(self, endpoint: Endpoint) -> _Channel:
        return _Channel(self.connect())

    async def start(self) -> None:
        """Load the logs, register, and become the controller."""
        await prepare(self.zk)
        await super().start()
        endpoint = Endpoint(LISTENER, "host-1", 9092)
        registration = BrokerRegistration(broker_id=BROKER_ID, endpoints=(endpoint,))
        self.broker_epoch = await BrokerRegistrar(self.zk, self.clock, wait_ms=0).register(registration)
        await self.runtime.start()
        while BROKER_ID not in self.view.image.brokers:
            await self.clock.sleep_ms(1)

    async def close(self) -> None:
        """Stop; idempotent."""
        await self.runtime.close()
        await super().close()
