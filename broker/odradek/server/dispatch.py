"""Routes requests to handlers, and errors to responses.

`network/connection` calls `Dispatcher.handle` with each request. Direct handlers of Produce, Fetch and Heartbeat decode
the request and send the response without a task. Requests of all other APIs are decoded here at once, because the
buffer of a frame is only valid during the call. A coroutine handles them and returns a `Message`, which is encoded
here. If a handler raises an error of `base/errors`, `server/failures` builds the response. Any other exception is a
bug: it is logged, answered with UNKNOWN_SERVER_ERROR, and does not affect other requests.

Clients with quotas are throttled here, and in the direct handlers: the response has the throttle time, and the
connection is muted after it. A handler that sets `throttle_time_ms` in its message has its client muted for that time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from odradek.base.errors import OdradekError, ProtocolError, UnknownServerError, UnsupportedVersionError
from odradek.base.ports import Clock
from odradek.metrics.request_stats import RequestSample, RequestStats
from odradek.network.connection import Request
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey, knows_private_apis
from odradek.protocol.codec import ApiMessage, Message
from odradek.protocol.messages.cluster import ApiVersionsRequest
from odradek.security.principals import Identity
from odradek.server.failures import failure, wire_error
from odradek.server.senders import InterBrokerListeners
from odradek.server.throttling.client_throttle import ClientThrottle

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The client, the listener and the version of a request."""

    api_key: ApiKey
    api_version: int
    client_id: str | None
    client_host: str
    listener: str
    identity: Identity
    """Who the client is, and what authorization is about."""


Handler = Callable[[RequestContext, Any], Awaitable[Message]]
"""Handles a decoded request, an object of the API's request class, and returns the message of the response."""

_Request = TypeVar("_Request", bound=ApiMessage)


def route(
    request_type: type[_Request], handler: Callable[[RequestContext, _Request], Awaitable[Message]]
) -> tuple[ApiKey, Handler]:
    """Return an API with its handler. The types ensure that the handler accepts the API's request class."""
    return request_type.API_KEY, handler


DirectHandler = Callable[[Request], None]
"""Decodes and handles a request, and sends the response before it returns or in a callback."""


class Dispatcher:
    """Routes requests and owns the tasks that handle them."""

    def __init__(
        self,
        *,
        handlers: Mapping[ApiKey, Handler],
        direct: Mapping[ApiKey, DirectHandler],
        stats: RequestStats,
        clock: Clock,
        inter_broker: InterBrokerListeners | None = None,
        throttle: ClientThrottle | None = None,
    ) -> None:
        """Raises `ValueError` unless the handlers cover exactly the API table.

        `inter_broker` decides on which listeners internal APIs are served. With None, they are served on all listeners.
        Without `throttle`, clients have no quotas.
        """
        served = set(handlers) | set(direct)
        if served != set(API_TABLE):
            raise ValueError(f"handlers and API table differ in {sorted(served ^ set(API_TABLE))}")
        self._handlers = dict(handlers)
        self._direct = dict(direct)
        self._stats = stats
        self._clock = clock
        self._inter_broker = inter_broker
        self._throttle = throttle
        self._tasks: set[asyncio.Task[None]] = set()
        self.waiting = 0
        """Number of requests whose handlers have not started yet."""

    def handle(self, request: Request) -> None:
        """Handle one request. Called by the connection.

        Raises `MalformedFrameError` for an invalid frame, and `UnsupportedVersionError` for a private API that the
        client does not know. Both close the connection.
        """
        throttle, direct = self._throttle, self._direct.get(request.api_key)
        if throttle is not None and (direct is not None or not API_TABLE[request.api_key].is_exempt_from_quotas):
            throttle.run(request, direct or self._route, request)
        elif direct is not None:
            direct(request)
        else:
            self._route(request)

    def _route(self, request: Request) -> None:
        """Begin the task of a request whose handler is not direct."""
        api = API_TABLE[request.api_key]
        if not api.serves(request.api_version):
            self._answer_unknown_api_versions(request)
            return
        if api.internal and self._is_refused(request):
            return
        if api.private and not request.connection.knows_private_apis:
            raise UnsupportedVersionError(f"API key {int(api.key)} is not supported")
        decoded = codec.decode_request(request.header, request.frame, request.position)
        if api.key is ApiKey.API_VERSIONS:
            note_software(request, decoded)
        context = RequestContext(
            api_key=request.api_key,
            api_version=request.api_version,
            client_id=request.client_id,
            client_host=request.peer_host,
            listener=request.listener,
            identity=request.identity,
        )
        self.waiting += 1
        work = self._serve(request, context, decoded)
        if self._throttle is not None and self._throttle.measures_time and not api.is_exempt_from_quotas:
            work = self._throttle.timed(request, work)
        task = asyncio.get_running_loop().create_task(work, name=f"request-{api.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_refused(self, request: Request) -> bool:
        """Refuse an internal request on a client listener, without decoding it. Return whether it was refused."""
        if self._inter_broker is None:
            return False
        name = API_TABLE[request.api_key].name
        error = self._inter_broker.refusal(request.listener, request.peer_host, name)
        if error is None:
            return False
        self._stats.answered(name, request.api_version)
        answer, _ = self._failed(request, None, error)
        if answer is None:
            request.fail("the request cannot be answered")
        else:
            request.respond([answer])
        return True

    async def _serve(self, request: Request, context: RequestContext, decoded: object) -> None:
        self.waiting -= 1
        name = API_TABLE[context.api_key].name
        times = self._stats.times_of(name)
        times.countdown -= 1
        if not times.countdown:
            request.sample = times.sample(request.received_ms, self._clock.monotonic_ms())
        answer, throttle_ms = None, 0
        try:
            answer, throttle_ms = await self._answer(request, context, decoded)
        except asyncio.CancelledError:
            request.fail("the broker is stopping")
            raise
        except Exception:
            # No response can be built. Without this call, the connection would wait for one forever.
            logger.exception("%s: the response cannot be built", request)
        if answer is None:
            request.fail("the request cannot be answered")
            return
        self._stats.answered(name, context.api_version)
        request.respond([answer])
        if throttle_ms and self._throttle is not None:
            self._throttle.mute(request, throttle_ms)

    async def _answer(self, request: Request, context: RequestContext, decoded: object) -> tuple[bytes | None, int]:
        """Return the frame of the response, also if the request failed, and its throttle time in ms. The frame is None
        if the protocol has no response for the failure."""
        try:
            work = self._handlers[context.api_key](context, decoded)
            message = await (work if request.sample is None else _FirstStep(work, request.sample, self._clock))
            self._count_errors(context.api_key, message)
            return self._encoded(request, message)
        except OdradekError as caught:
            error = wire_error(caught)
            if error is not caught:
                logger.warning("%s: %s", request, caught)
        except Exception:
            # A bug in a handler only fails its own request.
            logger.exception("%s: the handler failed", request)
            error = UnknownServerError("The broker failed to handle the request: see its log.")
        return self._failed(request, decoded, error)

    def _count_errors(self, api_key: ApiKey, message: Message) -> None:
        name = API_TABLE[api_key].name
        for code in error_codes(message, _ERROR_DEPTH.get(api_key, _DEEPEST)):
            self._stats.failed(name, code)
        if message.get("error_code"):
            self._stats.failed_whole(name)

    def _encoded(self, request: Request, message: Message) -> tuple[bytes, int]:
        throttle_ms = 0
        if self._throttle is not None and not API_TABLE[request.api_key].is_exempt_from_quotas:
            message, throttle_ms = self._throttle.of_answer(request, message)
        frame = codec.encode_response(request.api_key, request.api_version, request.correlation_id, message)
        return frame, throttle_ms

    def _failed(self, request: Request, decoded: object, error: ProtocolError) -> tuple[bytes | None, int]:
        name = API_TABLE[request.api_key].name
        self._stats.failed(name, error.code)
        self._stats.failed_whole(name)
        message = failure(request.api_key, request.api_version, decoded, error)
        return (None, 0) if message is None else self._encoded(request, message)

    def _answer_unknown_api_versions(self, request: Request) -> None:
        # `network` refuses unsupported versions, except of this API.
        request.respond([unknown_api_versions(request.correlation_id)])

    async def close(self) -> None:
        """Cancel all tasks and wait for their end. Idempotent."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.waiting = 0


def note_software(request: Request, decoded: ApiVersionsRequest) -> None:
    """Remember whether the client that sends ApiVersions knows the private APIs."""
    request.connection.knows_private_apis = knows_private_apis(decoded.client_software_name)


def unknown_api_versions(correlation_id: int) -> bytes:
    """Return the response of version 0 to an unsupported version of ApiVersions: it informs a newer client of the
    supported versions (KIP-511)."""
    api = API_TABLE[ApiKey.API_VERSIONS]
    message: Message = {
        "error_code": UnsupportedVersionError.code,
        "api_keys": [{"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}],
    }
    return codec.encode_response(ApiKey.API_VERSIONS, 0, correlation_id, message)


class _FirstStep(Awaitable[Message]):
    """Awaits a handler and records when it first suspends: the time before is local time, the rest remote time."""

    def __init__(self, work: Awaitable[Message], sample: RequestSample, clock: Clock) -> None:
        self._work = work
        self._sample = sample
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, Message]:
        steps = self._work.__await__()
        try:
            waited_for = next(steps)
        except StopIteration as end:
            return cast(Message, end.value)
        self._sample.parked_ms = self._clock.monotonic_ms()
        return (yield from _going_on(steps, waited_for))


def _going_on(steps: Generator[Any, Any, Message], waited_for: object) -> Generator[Any, Any, Message]:
    """Continue a coroutine that has already been started: await what it waits for, then run the rest."""
    try:
        yield waited_for
    except BaseException as error:  # noqa: BLE001 - a cancellation, mostly: the coroutine's, which may take it or go on
        try:
            waited_for = steps.throw(error)
        except StopIteration as end:
            return cast(Message, end.value)
        return (yield from _going_on(steps, waited_for))
    return (yield from steps)


_ERROR_FIELDS: Final = {"error_code", "partition_error_code"}
"""Names of the fields with error codes; the second is that of AddPartitionsToTxn."""
_DEEPEST: Final = 3
_ERROR_DEPTH: Final = {ApiKey.METADATA: 1, ApiKey.DESCRIBE_LOG_DIRS: 1}
"""Maximum nesting depth in which error codes are counted, for APIs whose error codes are above the partitions."""


def error_codes(message: Mapping[str, object], depth: int) -> Iterator[int]:
    """Yield the non-zero error codes of a response, down to a nesting depth."""
    for name, value in message.items():
        if name in _ERROR_FIELDS:
            if value:
                yield int(cast(int, value))
        elif depth and isinstance(value, list | tuple):
            for item in value:
                if not isinstance(item, Mapping):
                    break
                yield from error_codes(item, depth - 1)
