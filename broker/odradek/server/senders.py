"""Checks the senders of internal requests: their listener and their cluster.

`server/dispatch` asks `InterBrokerListeners` before it decodes an internal request. `server/control` asks
`ControllerCheck` before the first request of a controller takes effect: ZooKeeper must name that controller. The
requests have no cluster id, so clusters are distinguished by the broker epoch and by the ids and epochs in
`/controller` and `/controller_epoch`.
"""

from __future__ import annotations

import logging
from typing import Final

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    ClusterAuthorizationFailedError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
)
from odradek.base.ports import Clock
from odradek.base.types import NO_BROKER, NO_EPOCH
from odradek.zk import layout
from odradek.zk.layout import ControllerRegistration, LayoutError
from odradek.zk.port import ConnectionLost, SessionExpired, ZkClient

logger = logging.getLogger(__name__)

MAX_ADDRESSES: Final = 1_000
"""Maximum number of clients whose refusal is logged."""

LAG_MS: Final = 10_000.0
"""Milliseconds that a ZooKeeper server may be behind the others: the default of syncLimit times tickTime."""
FIRST_PAUSE_MS: Final = 50.0
"""First pause between two reads, in milliseconds. It doubles each time up to `MAX_PAUSE_MS`."""
MAX_PAUSE_MS: Final = 1_000.0


class InterBrokerListeners:
    """The listeners that accept internal requests: the only listener, or the configured ones."""

    def __init__(self, config: BrokerConfig) -> None:
        """`config`: the effective settings."""
        self._logged: set[tuple[str, str]] = set()
        self.reconfigure(config)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._are_separate = len(config.listener_endpoints()) > 1
        self._accepting = {*config.inter_broker_request_listeners, config.inter_broker_listener}

    def refusal(self, listener: str, client_host: str, api: str) -> ClusterAuthorizationFailedError | None:
        """Return the error if an internal request is refused on this listener. Logs it once for each client and
        listener."""
        if not self._are_separate or listener in self._accepting:
            return None
        if (listener, client_host) not in self._logged and len(self._logged) < MAX_ADDRESSES:
            self._logged.add((listener, client_host))
            logger.warning(
                "%s from %s is refused on listener %s: requests between brokers are only accepted on %s "
                "(inter.broker.listener.name, inter.broker.request.listeners)",
                api,
                client_host,
                listener,
                ", ".join(sorted(self._accepting)),
            )
        return ClusterAuthorizationFailedError(
            f"{api} is a request between brokers and is not accepted on listener {listener}."
        )


class _ReplacedError(StaleControllerEpochError):
    """ZooKeeper has a later controller. This is final even if the ZooKeeper server is behind the others."""


class ControllerCheck:
    """Compares senders with the controller in ZooKeeper. The last verified controller is not checked again."""

    def __init__(self, zk: ZkClient, clock: Clock, *, broker_id: int) -> None:
        """`broker_id` is the id of this broker."""
        self._zk = zk
        self._clock = clock
        self._broker_path = layout.broker_path(broker_id)
        self._known = (NO_BROKER, NO_EPOCH)
        self._known_broker_epoch = NO_EPOCH

    async def check(self, controller_id: int, controller_epoch: int, broker_epoch: int, own_epoch: int) -> None:
        """Raise `StaleControllerEpochError` or `StaleBrokerEpochError` if the sender is not the cluster's controller.

        `broker_epoch` is the epoch in the request, `own_epoch` the epoch that this broker knows. The former can be
        newer, because the controller may learn of a registration first. The ZooKeeper server may be behind, so a
        mismatch is checked again for `LAG_MS`. If ZooKeeper does not answer, the request is accepted and the next one
        is checked.
        """
        if self._is_known(controller_id, controller_epoch, broker_epoch, own_epoch):
            return
        deadline_ms, rest_ms = self._clock.monotonic_ms() + LAG_MS, FIRST_PAUSE_MS
        while True:
            try:
                error = await self._error(controller_id, controller_epoch, broker_epoch, own_epoch)
            except (ConnectionLost, SessionExpired) as lost:
                logger.info(
                    "controller %d of epoch %d cannot be checked in ZooKeeper and is accepted: %s",
                    controller_id,
                    controller_epoch,
                    lost,
                )
                return
            if error is None:
                self._known = (controller_id, controller_epoch)
                self._known_broker_epoch = broker_epoch
                return
            if self._clock.monotonic_ms() >= deadline_ms or isinstance(error, _ReplacedError):
                logger.warning(
                    "a request is refused because its sender is not the controller of this cluster: %s", error
                )
                raise error
            await self._clock.sleep_ms(rest_ms)
            rest_ms = min(2 * rest_ms, MAX_PAUSE_MS)

    def _is_known(self, controller_id: int, controller_epoch: int, broker_epoch: int, own_epoch: int) -> bool:
        if self._known != (controller_id, controller_epoch):
            return False
        return broker_epoch <= max(own_epoch, self._known_broker_epoch)

    async def _error(
        self, controller_id: int, controller_epoch: int, broker_epoch: int, own_epoch: int
    ) -> StaleControllerEpochError | StaleBrokerEpochError | None:
        found = await self._zk.get_many((layout.CONTROLLER, layout.CONTROLLER_EPOCH, self._broker_path))
        actual, epoch = _read(found[layout.CONTROLLER], found[layout.CONTROLLER_EPOCH])
        sender = f"controller {controller_id} of epoch {controller_epoch}"
        if controller_epoch < epoch:
            return _ReplacedError(f"{sender} sent it, but {layout.CONTROLLER_EPOCH} already has epoch {epoch}")
        if controller_epoch > epoch:
            return StaleControllerEpochError(f"{sender} sent it, but {layout.CONTROLLER_EPOCH} has epoch {epoch}")
        if actual not in (controller_id, NO_BROKER):
            return StaleControllerEpochError(f"{sender} sent it, but {layout.CONTROLLER} names broker {actual}")
        registered = found[self._broker_path]
        if broker_epoch > own_epoch and (registered is None or registered[1].czxid < broker_epoch):
            return StaleBrokerEpochError(
                f"{sender} sent it for broker epoch {broker_epoch}, but {self._broker_path} has "
                f"{'no znode' if registered is None else registered[1].czxid}"
            )
        return None


def _read(controller: tuple[bytes, object] | None, epoch: tuple[bytes, object] | None) -> tuple[int, int]:
    """Return broker id and epoch of the controller; -1 and 0 if there is none or if a znode is invalid."""
    try:
        broker_id = NO_BROKER if controller is None else ControllerRegistration.decode(controller[0]).broker_id
        return broker_id, 0 if epoch is None else layout.decode_controller_epoch(epoch[0])
    except LayoutError as error:
        logger.error("a znode of the controller is invalid: %s", error)
        return NO_BROKER, 0
