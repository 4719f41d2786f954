"""Records when ZooKeeper notices the death of a controller, and when the next one is elected.

Watches record the times on kazoo's thread; the workload reads them at the end.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final, Self

from kazoo.client import KazooClient

CONTROLLER: Final = "/controller"
BROKERS: Final = "/brokers/ids"
_CONNECT_SECONDS: Final = 30.0


class ControllerWatch:
    """Watches `/controller` and the registered brokers while it is open."""

    def __init__(self, connect: str) -> None:
        """`connect`: address of ZooKeeper."""
        self._client = KazooClient(connect)
        self.controllers: Final[list[tuple[float, int | None]]] = []
        """Monotonic seconds of each change, with the new controller (None: there is none)."""
        self.brokers: Final[list[tuple[float, frozenset[int]]]] = []
        """Monotonic seconds of each change, with the registered brokers."""

    def __enter__(self) -> Self:
        self._client.start(_CONNECT_SECONDS)
        self._client.DataWatch(CONTROLLER, self._controller_changed)
        self._client.ChildrenWatch(BROKERS, self._brokers_changed)
        return self

    def __exit__(self, *error: object) -> None:
        self._client.stop()
        self._client.close()

    def _controller_changed(self, data: bytes | None, _stat: Any) -> None:
        self.controllers.append((time.monotonic(), None if data is None else int(json.loads(data)["brokerid"])))

    def _brokers_changed(self, names: list[str]) -> None:
        self.brokers.append((time.monotonic(), frozenset(map(int, names))))

    @property
    def controller(self) -> int | None:
        """The current controller."""
        return self.controllers[-1][1] if self.controllers else None

    def detected(self, victim: int) -> float | None:
        """Return when the session of a controller ended: when one of its znodes disappeared."""
        signs = [when for when, brokers in self.brokers if victim not in brokers][:1]
        signs += [when for when, broker in self.controllers if broker != victim][:1]
        return min(signs, default=None)

    def elected(self, victim: int) -> float | None:
        """Return when another broker became controller."""
        return next((when for when, broker in self.controllers if broker not in (None, victim)), None)
