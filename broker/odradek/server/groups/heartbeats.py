"""The handler of Heartbeat, which has no task and no message objects: a coordinator of 10,000 groups of three members
gets 10,000 heartbeats per second.

It is a direct handler of `dispatch`, so it also does what the dispatcher does for other APIs: the access rules, the
quota of request time, the statistics and the conversion of errors.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from odradek.base.errors import NONE, OdradekError, UnknownServerError
from odradek.base.ports import Clock
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.group_requests import MemberCheck
from odradek.metrics.request_stats import RequestStats
from odradek.network.connection import Request
from odradek.protocol.apis import ApiKey
from odradek.protocol.hotpath_heartbeat import ClassicHeartbeat, decode_heartbeat, encode_heartbeat_response
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.server.authorization.authorizer import Authorizer
from odradek.server.authorization.guards import refusal
from odradek.server.dispatch import DirectHandler
from odradek.server.failures import wire_error
from odradek.server.throttling.client_throttle import ClientThrottle

logger = logging.getLogger(__name__)

_NAME: Final = "Heartbeat"


class HeartbeatHandler:
    """Handles Heartbeat of members of classic groups."""

    def __init__(
        self,
        *,
        groups: GroupCoordinator,
        stats: RequestStats,
        clock: Clock,
        authorizer: Authorizer | None = None,
        throttle: ClientThrottle | None = None,
    ) -> None:
        """Without an `authorizer`, everyone may read every group; without `throttle`, clients have no quotas."""
        self._groups: Final = groups
        self._stats: Final = stats
        self._times: Final = stats.times_of(_NAME)
        self._clock: Final = clock
        self._authorizer: Final = authorizer
        self._throttle: Final = throttle

    def direct(self) -> Mapping[ApiKey, DirectHandler]:
        """The handler by API."""
        return {ApiKey.HEARTBEAT: self.handle}

    def handle(self, request: Request) -> None:
        """Handle a request and respond. Raises `MalformedFrameError`."""
        times = self._times
        times.countdown -= 1
        if not times.countdown:
            request.sample = times.sample(request.received_ms, self._clock.monotonic_ms())
        version = request.api_version
        code = self._code(request, decode_heartbeat(version, request.frame, request.position))
        if code:
            self._stats.failed(_NAME, code)
            self._stats.failed_whole(_NAME)
        throttle_ms = 0 if self._throttle is None else self._throttle.of_time(request)
        self._stats.answered(_NAME, version)
        request.respond((encode_heartbeat_response(version, request.correlation_id, code, throttle_ms),))
        if throttle_ms and self._throttle is not None:
            self._throttle.mute(request, throttle_ms)

    def _code(self, request: Request, heartbeat: ClassicHeartbeat) -> int:
        """Extend the session of the member. Returns the error code."""
        group_id, generation, member_id, instance_id = heartbeat
        try:
            self._check_access(request, group_id)
            # `tuple.__new__`: the constructor of a NamedTuple is interpreted in the compiled form as well.
            fields = (group_id, member_id, instance_id, generation)
            self._groups.heartbeat(tuple.__new__(MemberCheck, fields))
        except OdradekError as caught:
            error = wire_error(caught)
            if error is not caught:
                logger.warning("%s: %s", request, caught)
            return error.code
        except Exception:
            # A bug only fails its own request.
            logger.exception("%s: the handler failed", request)
            return UnknownServerError.code
        return NONE

    def _check_access(self, request: Request, group_id: str) -> None:
        authorizer = self._authorizer
        if authorizer is not None and authorizer.denied(
            request.identity, AclOperation.READ, ResourceType.GROUP, (group_id,), _NAME
        ):
            raise refusal(AclOperation.READ, ResourceType.GROUP)
