"""What ZooKeeper says of a controller's end, with the time of each change: the session that ended, the next election.

Watches enter stamps on kazoo's thread as events come in; the workload reads them when all is over.
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
    """Follows `/controller` and the registered brokers while it is open."""

    def __init__(self, connect: str) -> None:
        """`connect`: ZooKeeper's address."""
        self._client = KazooClient(connect)
        self.controllers: Final[list[tuple[float, int | None]]] = []
        """Monotonic seconds and the controller from then on; None: there is none."""
        self.brokers: Final[list[tuple[float, frozenset[int]]]] = []
        """Monotonic seconds and the brokers that are registered from then on."""

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
        """The broker that is controller now."""
        return self.controllers[-1][1] if self.controllers else None

    def detected(self, victim: int) -> float | None:
        """When the session of a controller was found to have ended: either of its znodes is its no more."""
        signs = [when for when, brokers in self.brokers if victim not in brokers][:1]
        signs += [when for when, broker in self.controllers if broker != victim][:1]
        return min(signs, default=None)

    def elected(self, victim: int) -> float | None:
        """When another than the victim became controller."""
        return next((when for when, broker in self.controllers if broker not in (None, victim)), None)
