"""One real broker inside the test process, with ZooKeeper in memory. It starts in a second, without Java.

The broker has log files, a listener on the loopback address and a controller. It runs on an event loop in a background
thread, so synchronous and asynchronous tests can use it. `MemoryTree` replaces ZooKeeper. Use `RunningCluster` for
several brokers, failover or real ZooKeeper.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from odradek.app.broker import Broker
from odradek.app.system import System, system
from odradek.base.config import BrokerConfig
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.testing.waiting import wait_until
from odradek.zk.layout import BrokerRegistration, broker_path
from odradek.zk.port import ZkSettings

_T = TypeVar("_T")
_CALL_SECONDS: Final = 60.0

DEFAULTS: Final[Mapping[str, object]] = {
    "broker.id": 0,
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "zookeeper.connect": "in-memory:2181",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
"""Properties of the broker unless the test overrides them. The operating system chooses the port."""


class _MemorySession(MemoryZk):
    """The broker's ZooKeeper session; connected from the start."""

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """None: no other process can end a session in memory."""
        return None

    async def start(self) -> None:
        """Do nothing: the session is connected."""


class InProcessBroker:
    """A broker in a background thread. `start` returns when it serves clients; `close` stops it and is idempotent.

    A broker that was closed can be started again: its logs and its ZooKeeper data are kept.
    """

    def __init__(self, directory: Path, config: Mapping[str, object] | None = None) -> None:
        """`directory` holds the logs. `config` has broker properties, which override `DEFAULTS`."""
        self.directory: Final = directory
        properties = {**DEFAULTS, "log.dirs": directory, **(config or {})}
        self._properties = {name: str(value) for name, value in properties.items()}
        self._tree = MemoryTree()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._broker: Broker | None = None

    def start(self) -> None:
        """Start the broker. Raises `ConfigError` for an invalid property, or another `OdradekError` with the reason."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="odradek-broker", daemon=True)
        self._thread.start()
        try:
            broker = self._call(self._start())
            wait_until(lambda: broker.ready().passed, what="a broker that serves clients", seconds=_CALL_SECONDS)
        except BaseException:
            self.close()
            raise

    async def _start(self) -> Broker:
        config, _ = BrokerConfig.parse(self._properties)
        self._broker = Broker(config, self._properties, self._system())
        await self._broker.start()
        return self._broker

    def _system(self) -> System:
        def connect(settings: ZkSettings, *, on_latency: Callable[[float], None]) -> _MemorySession:
            return _MemorySession(self._tree)

        return replace(system(), zookeeper=connect)

    def close(self) -> None:
        """Shut the broker down and end its thread. Idempotent."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or loop.is_closed():
            return
        try:
            if self._broker is not None:
                self._call(self._broker.stop())
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_CALL_SECONDS)
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        assert self._loop is not None, "not started"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_SECONDS)

    @property
    def bootstrap(self) -> str:
        """Addresses for `bootstrap.servers`, as the broker registered them: `127.0.0.1:port`."""
        broker_id = int(self._properties["broker.id"])
        registration = BrokerRegistration.decode(broker_id, self._tree.node(broker_path(broker_id)).data)
        return ",".join(f"{endpoint.host}:{endpoint.port}" for endpoint in registration.endpoints)
