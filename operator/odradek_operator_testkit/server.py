"""The in-memory API server over HTTP on the loopback interface, with watches.

It serves a `KubernetesApi` at a URL, and has a kubeconfig for any Kubernetes client. It is for tests that need sockets
and streams: watches of kopf, threads of the client, and connections that are refused or closed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from odradek_operator.kube.api.api_client import SERVICE_ACCOUNT_KEYS
from odradek_operator_testkit.api import Asked, KubernetesApi, Place, selection
from odradek_operator_testkit.resources import Object
from odradek_operator_testkit.store import ApiError, Change

HOST: Final = "127.0.0.1"
KEY_SET: Final = "application/jwk-set+json"
WATCH_SECONDS: Final = 300.0
"""Default time after which a watch ends."""


class ApiServer:
    """An HTTP server of one API. Use `serving`, or `up` and `down`."""

    def __init__(self, api: KubernetesApi | None = None) -> None:
        """Create a server, which listens after `up`."""
        self.api: Final = api or KubernetesApi()
        self.watches = 0
        """Number of open watches."""
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._open: set[asyncio.Transport] = set()
        self.api.store.listeners.append(self._hear)

    @property
    def url(self) -> str:
        """The URL of the server, also after `down`."""
        return f"http://{HOST}:{self._port}"

    def kubeconfig(self) -> str:
        """Return the text of a kubeconfig for this server."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "memory", "cluster": {"server": self.url}}],
            "users": [{"name": "somebody", "user": {"token": "none"}}],
            "contexts": [{"name": "memory", "context": {"cluster": "memory", "user": "somebody"}}],
            "current-context": "memory",
        }
        return json.dumps(document)

    async def up(self) -> None:
        """Start to listen. After `down`, the port is the same as before."""
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self._port, reuse_address=True)
        await site.start()
        assert site._server is not None
        self._port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]

    async def down(self) -> None:
        """Stop listening, and close all connections, including watches. Idempotent."""
        self.cut()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def cut(self) -> None:
        """Close every open connection."""
        for transport in list(self._open):
            transport.abort()

    def _hear(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None, "a request that is handled has a connection"
        self._open.add(request.transport)
        try:
            return await self._answer(request, await _read(request))
        finally:
            self._open.discard(request.transport or asyncio.Transport())

    async def _answer(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        faults = self.api.faults
        concerned = faults.concerns(asked)
        if faults.refuses:
            return _cut(request)
        if faults.delay_seconds and concerned:
            await asyncio.sleep(faults.delay_seconds)
        if asked.is_watch and not faults.status:
            return await self._watch(request, asked)
        if asked.path == SERVICE_ACCOUNT_KEYS and KEY_SET not in request.headers.get("Accept", ""):
            return web.Response(status=HTTPStatus.NOT_ACCEPTABLE)
        answer = self.api.answer(asked)
        if faults.loses_answers and concerned:
            return _cut(request)
        return web.json_response(answer.document, status=answer.status)

    async def _watch(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        try:
            place = self.api.place(asked.path)
            chosen = selection(asked, place.resource)
        except ApiError as error:
            return web.json_response(error.document(), status=error.status)
        self.api.reads.append(asked)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        self.watches += 1
        try:
            await response.prepare(request)
            async with asyncio.timeout(float(asked.query.get("timeoutSeconds", WATCH_SECONDS))):
                await self._stream(response, asked, _Watched(place, chosen))
        except (TimeoutError, ConnectionError):
            pass  # The requested time is over, or the client has disconnected. It then starts another watch.
        finally:
            self.watches -= 1
        return response

    async def _stream(self, response: web.StreamResponse, asked: Asked, watched: _Watched) -> None:
        store = self.api.store
        sent_version = int(asked.query.get("resourceVersion") or 0)
        if not sent_version:
            sent_version = store.version
            for body in store.all(watched.place.resource, watched.place.namespace):
                if watched.chosen(body):
                    await _say(response, "ADDED", body)
        while sent_version >= store.forgotten:
            changed = self._changed
            for change in [change for change in store.changes if change.version > sent_version]:
                sent_version = change.version
                for word, body in watched.events(change):
                    await _say(response, word, body)
            await changed.wait()
        gone = ApiError(HTTPStatus.GONE, "Expired", f"too old resource version: {sent_version} ({store.version})")
        await _say(response, "ERROR", gone.document())


@dataclass(frozen=True, slots=True)
class _Watched:
    """The selection of a watch."""

    place: Place
    chosen: Callable[[Object | None], bool]

    def events(self, change: Change) -> Iterator[tuple[str, Object]]:
        """Return the event for a change. An object that no longer matches the selection counts as deleted."""
        key = change.key
        if key.resource is not self.place.resource or self.place.namespace not in (None, key.namespace):
            return
        before = self.chosen(change.before)
        if change.after is not None and self.chosen(change.after):
            yield "MODIFIED" if before else "ADDED", change.after
        elif before and change.before is not None:
            metadata = change.before["metadata"] | {"resourceVersion": str(change.version)}
            yield "DELETED", change.before | {"metadata": metadata}


async def _say(response: web.StreamResponse, word: str, body: Object) -> None:
    await response.write(json.dumps({"type": word, "object": body}).encode() + b"\n")


async def _read(request: web.Request) -> Asked:
    text = await request.text()
    body: Any = json.loads(text) if text else None
    return Asked(
        method=request.method,
        path=request.path,
        query=dict(request.query),
        content_type=request.content_type,
        body=body,
    )


def _cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def serving(api: KubernetesApi | None = None) -> AsyncIterator[ApiServer]:
    """Run a server inside the block."""
    server = ApiServer(api)
    await server.up()
    try:
        yield server
    finally:
        await server.down()
