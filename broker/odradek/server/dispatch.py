"""From a request to its handler and from an error to its answer: the only place that knows both.

`network/connection` calls `Dispatcher.handle` with each request. Produce and Fetch go to direct handlers, which decode,
act and answer without a task. Every other API is decoded here at once (the frame's memory is borrowed), handled by a
coroutine that returns a `Message`, and encoded here. A handler raises `base.errors`; `server/failures` says how the API
at hand carries an error of the whole request. What is no `OdradekError` is a bug: it is logged with its context,
answered with UNKNOWN_SERVER_ERROR, and harms nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek.base.errors import OdradekError, ProtocolError, UnknownServerError, UnsupportedVersionError
from odradek.base.ports import Clock
from odradek.metrics import RequestStats
from odradek.network.connection import Request
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.server.failures import failure, wire_error

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Who asks, by which listener, in which version."""

    api_key: ApiKey
    api_version: int
    client_id: str | None
    client_host: str
    listener: str


Handler = Callable[[RequestContext, Any], Awaitable[Message]]
"""Handles a decoded request (the kio entity of its version) and returns the union message of the response."""

DirectHandler = Callable[[Request], None]
"""Decodes, acts and answers by itself, synchronously or through a callback."""


class Dispatcher:
    """Routes requests; owns the tasks of those under way."""

    def __init__(
        self,
        *,
        handlers: Mapping[ApiKey, Handler],
        direct: Mapping[ApiKey, DirectHandler],
        stats: RequestStats,
        clock: Clock,
    ) -> None:
        """Handlers must cover the API table exactly; anything else is a bug found at start."""
        served = set(handlers) | set(direct)
        if served != set(API_TABLE):
            raise ValueError(f"handlers and API table differ in {sorted(served ^ set(API_TABLE))}")
        self._handlers = dict(handlers)
        self._direct = dict(direct)
        self._stats = stats
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, request: Request) -> None:
        """Take one request; called by the connection.

        Raises `MalformedFrameError` for a bad frame, which ends its connection.
        """
        direct = self._direct.get(request.header.api_key)
        if direct is not None:
            direct(request)
            return
        api = API_TABLE[request.api_key]
        if not api.serves(request.api_version):
            self._answer_unknown_api_versions(request)
            return
        entity = codec.decode_request(request.header, request.frame, request.position)
        context = RequestContext(
            api_key=request.api_key,
            api_version=request.api_version,
            client_id=request.client_id,
            client_host=request.peer_host,
            listener=request.listener,
        )
        task = asyncio.get_running_loop().create_task(self._serve(request, context, entity), name=f"request-{api.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, request: Request, context: RequestContext, entity: object) -> None:
        try:
            answer = await self._answer(request, context, entity)
        except asyncio.CancelledError:
            request.fail("the broker is stopping")
            raise
        except Exception:
            # Not even the failure could be told. The connection would wait for this answer for ever.
            logger.exception("%s: no answer could be made", request)
            answer = None
        if answer is None:
            request.fail("the request cannot be answered")
            return
        self._stats.answered(
            API_TABLE[context.api_key].name, context.api_version, self._clock.monotonic_ms() - request.received_ms
        )
        request.respond([answer])

    async def _answer(self, request: Request, context: RequestContext, entity: object) -> bytes | None:
        """The response frame, whatever becomes of the request; None where the protocol cannot tell its failure."""
        try:
            message = await self._handlers[context.api_key](context, entity)
            return codec.encode_response(context.api_key, context.api_version, request.correlation_id, message)
        except OdradekError as caught:
            error = wire_error(caught)
            if error is not caught:
                logger.warning("%s: %s", request, caught)
        except Exception:
            # The edge that must survive: a handler's bug is its own request's, whose client is told.
            logger.exception("%s: the handler failed", request)
            error = UnknownServerError("The broker failed; its log says why.")
        return self._failed(request, context, entity, error)

    def _failed(self, request: Request, context: RequestContext, entity: object, error: ProtocolError) -> bytes | None:
        self._stats.failed(API_TABLE[context.api_key].name, type(error).__name__.removesuffix("Error"))
        message = failure(context.api_key, context.api_version, entity, error)
        if message is None:
            return None
        return codec.encode_response(context.api_key, context.api_version, request.correlation_id, message)

    def _answer_unknown_api_versions(self, request: Request) -> None:
        # The network refuses versions that are not served, but for this API (KIP-511): a client that is newer than
        # this broker learns the range from a version 0 answer.
        api = API_TABLE[ApiKey.API_VERSIONS]
        message: Message = {
            "error_code": UnsupportedVersionError.code,
            "api_keys": [{"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}],
        }
        request.respond([codec.encode_response(ApiKey.API_VERSIONS, 0, request.correlation_id, message)])

    async def close(self) -> None:
        """Cancel what is under way and wait for its end; idempotent."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
