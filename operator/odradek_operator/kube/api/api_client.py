"""Requests to the Kubernetes API server, with plain objects. Writes are limited in rate.

The library `kubernetes` provides the configuration and sends the requests in a few threads. Failures raise
`KubernetesError`. Nothing is retried here, because every caller repeats its work in the next round.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from odradek.base.errors import OdradekError
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.objects.names import FIELD_MANAGER

MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
SERVICE_ACCOUNT_KEYS: Final = "/openid/v1/jwks"
PAGE: Final = 500
"""Maximum number of objects in one page of a list."""
MIN_WRITE_SECONDS: Final = 1.0
"""Minimum seconds before the fence for a write to be sent."""
BURST_SECONDS: Final = 0.2
"""Seconds of the rate that may be used at once after a pause."""

Fence = Callable[[], float]
"""Returns for how many seconds writes are still allowed; 0 or less if they are not."""


class KubernetesError(OdradekError):
    """The API server refused a request or did not answer. `status` is 0 if there was no answer."""

    def __init__(self, request: str, status: int, reason: str) -> None:
        """`request`: verb and path. `reason`: the message of the server or the network."""
        super().__init__(f"Kubernetes: {request}: {f'{status} ' if status else ''}{reason}")
        self.status: Final = status
        self.reason: Final = reason


class FencedError(KubernetesError):
    """A write was not sent, because the Lease is lost or about to expire."""

    def __init__(self, request: str) -> None:
        """`request` is verb and path."""
        super().__init__(request, 0, "not sent: this operator no longer holds the Lease of the namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    body: Object | None
    content_type: str
    seconds: float
    """Timeout of the answer in seconds."""
    fenced: bool
    """Whether the server must not execute it after the timeout either."""

    def __str__(self) -> str:
        """Return verb and path."""
        return f"{self.method} {self.path}"


def load_configuration() -> Configuration:
    """Load the pod's service account, else KUBECONFIG. Raises `KubernetesError` if there is neither."""
    configuration = Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise KubernetesError("configuration", 0, f"{error}; run in a pod, or set KUBECONFIG") from error
    return configuration


class Pace:
    """A rate limiter, first come, first served."""

    def __init__(self, per_second: float) -> None:
        """`per_second`: the average rate. Raises `ValueError` unless it is positive."""
        if per_second <= 0:
            raise ValueError(f"{per_second} per second is not a valid rate")
        self._interval = 1 / per_second
        self._next = 0.0

    async def take(self) -> None:
        """Wait for the next turn."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        turn = max(self._next, now - BURST_SECONDS)
        self._next = turn + self._interval
        if turn > now:
            await asyncio.sleep(turn - now)


class KubernetesClient:
    """A client of the API server. Create and use it on one event loop; `close` it."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        writes_per_second: float = 15.0,
        timeout_seconds: float = 15.0,
        threads: int = 4,
    ) -> None:
        """Writes above the rate limit wait. A request without an answer fails after `timeout_seconds`."""
        configuration.retries = urllib3.Retry(0)
        configuration.connection_pool_maxsize = threads
        self._api = ApiClient(configuration)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kubernetes")
        self._limit(writes_per_second, timeout_seconds)

    def _limit(self, writes_per_second: float, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._pace = Pace(writes_per_second)
        self._fence: Fence | None = None
        self._check: Callable[[], None] = _allow
        self._listeners: list[Callable[[Object], None]] = []

    def on_answer(self, listener: Callable[[Object], None]) -> None:
        """Call `listener` with each object that a write returns, also for copies of this client.

        Not for deletions: whether the object in the answer still exists depends on its kind.
        """
        self._listeners.append(listener)

    def checked(self, check: Callable[[], None]) -> Self:
        """Return a client that calls `check` before each write, which raises an error to prevent it."""
        other = copy.copy(self)
        other._check = check
        return other

    def fenced(self, fence: Fence | None) -> Self:
        """Return a client whose writes are sent only while `fence` allows them. None returns this client.

        A write ends before the fence: neither this side nor the server waits longer.
        """
        if fence is None:
            return self
        other = copy.copy(self)
        other._fence = fence
        return other

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """Read one object. Returns None if it does not exist."""
        return await _or_none(self._request("GET", kind.path(namespace, name)))

    async def list_with_version(
        self, kind: Kind, namespace: str | None, *, selector: str = "", fields: str = ""
    ) -> tuple[list[Object], str]:
        """As `list`, with the `resourceVersion` at which these were all objects."""
        found: list[Object] = []
        more = ""
        while True:
            query = {"limit": str(PAGE), "labelSelector": selector, "fieldSelector": fields, "continue": more}
            answer = await self._request("GET", kind.path(namespace), {k: v for k, v in query.items() if v})
            found += answer["items"]
            more = answer["metadata"].get("continue", "")
            if not more:
                return found, answer["metadata"]["resourceVersion"]

    async def list(self, kind: Kind, namespace: str | None, *, selector: str = "", fields: str = "") -> list[Object]:
        """List the objects of a kind in one or all namespaces, consistently, page by page.

        `selector` selects by labels, `fields` by the fields that Kubernetes supports.
        """
        return (await self.list_with_version(kind, namespace, selector=selector, fields=fields))[0]

    async def service_account_keys(self) -> bytes:
        """Return the keys that verify tokens of ServiceAccounts, as a JSON Web Key Set (RFC 7517).

        The same keys are the same bytes.
        """
        return json.dumps(await self._request("GET", SERVICE_ACCOUNT_KEYS), sort_keys=True).encode()

    async def apply(self, body: Object, *, force: bool = True) -> Object:
        """Server-side apply: create the object, or set the fields in `body`, even if others have set them.

        Without `force`, it fails with status 409 if another field manager has set a field to another value.
        """
        reference = Reference.of(body)
        await self._turn()
        return await self._write(
            "PATCH",
            reference.kind.path(reference.namespace, reference.name),
            {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"},
            body,
            APPLY,
        )

    async def create(self, body: Object, *, paced: bool = True) -> Object:
        """Create an object. Fails with status 409 if it exists."""
        kind = Reference.of(body)
        await self._turn(paced=paced)
        return await self._write("POST", kind.kind.path(kind.namespace), {"fieldManager": FIELD_MANAGER}, body)

    async def replace(self, body: Object, *, paced: bool = True) -> Object:
        """Replace an object. Fails with status 409 if it has changed since its `resourceVersion`."""
        which = Reference.of(body)
        await self._turn(paced=paced)
        path = which.kind.path(which.namespace, which.name)
        return await self._write("PUT", path, {"fieldManager": FIELD_MANAGER}, body)

    async def merge(self, which: Reference, patch: Object, *, sub: str | None = None) -> Object | None:
        """Merge a patch into an object or one of its subresources. Returns None if the object does not exist."""
        await self._turn()
        path = which.kind.path(which.namespace, which.name, sub)
        return await _or_none(self._write("PATCH", path, {"fieldManager": FIELD_MANAGER}, patch, MERGE))

    async def delete(
        self,
        which: Reference,
        *,
        uid: str | None = None,
        version: str | None = None,
        force: bool = False,
        orphan: bool = False,
    ) -> bool:
        """Delete an object. Returns False if it does not exist.

        With `uid` or `version` (its `resourceVersion`), it must be that object, unchanged; else returns False. `force`
        deletes without grace period, the only way to remove a pod whose node will never answer. `orphan` keeps the
        dependents of the object.
        """
        policy = "Orphan" if orphan else "Background"
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        wanted = {"uid": uid, "resourceVersion": version}
        if preconditions := {field: value for field, value in wanted.items() if value is not None}:
            body["preconditions"] = preconditions
        if force:
            body["gracePeriodSeconds"] = 0
        await self._turn()
        path = which.kind.path(which.namespace, which.name)
        try:
            return await _or_none(self._request("DELETE", path, {}, body)) is not None
        except KubernetesError as error:
            if error.status == HTTPStatus.CONFLICT and preconditions:
                return False
            raise

    async def _turn(self, *, paced: bool = True) -> None:
        """Wait until a write may be sent."""
        self._check()
        if paced:
            await self._pace.take()

    async def _write(self, method: str, path: str, *rest: Any) -> Object:
        answer = await self._request(method, path, *rest)
        for listener in self._listeners:
            listener(answer)
        return answer

    async def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        seconds, fenced = self._timeout, method != "GET" and self._fence is not None
        if fenced:
            assert self._fence is not None
            seconds = min(seconds, self._fence())
            if seconds < MIN_WRITE_SECONDS:
                raise FencedError(f"{method} {path}")
        call = Call(
            method=method,
            path=path,
            query=query or {},
            body=body,
            content_type=content_type,
            seconds=seconds,
            fenced=fenced,
        )
        return await self._exchange(call)

    async def _exchange(self, call: Call) -> Object:
        until = time.monotonic() + call.seconds
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: self._send(call, until))

    def _send(self, call: Call, until: float) -> Object:
        """Send a request in a thread, after the wait for a free one."""
        seconds, query = self._timeout, call.query
        if call.fenced:
            seconds = min(seconds, until - time.monotonic())
            if seconds < MIN_WRITE_SECONDS:
                raise FencedError(str(call))
            # The server gives up the request after this time, too.
            query = {**query, "timeout": f"{int(seconds * 1000)}ms"}
        # The keys of ServiceAccounts have another type.
        accept = "application/json, application/jwk-set+json"
        headers = {"Accept": accept, "Content-Type": call.content_type, "User-Agent": FIELD_MANAGER}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], call.path, call.method, call.body)
        url = f"{self._api.configuration.host}{call.path}" + (f"?{urlencode(query)}" if query else "")
        data = json.dumps(call.body).encode() if call.content_type == APPLY else call.body
        try:
            response = self._api.call_api(call.method, url, headers, data, _request_timeout=seconds)
            # Reading the body may fail, too.
            content: bytes = response.read()  # type: ignore[no-untyped-call]
        except (urllib3.exceptions.HTTPError, OSError, ApiException) as error:
            raise KubernetesError(str(call), 0, f"no answer: {error}") from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise KubernetesError(str(call), response.status, _reason(content))
        try:
            value = json.loads(content)
        except ValueError as error:
            # A proxy answered instead of the API server.
            raise KubernetesError(str(call), 0, f"no JSON: {_reason(content)}") from error
        if not isinstance(value, dict):
            raise KubernetesError(str(call), 0, f"no object: {_reason(content)}")
        return value

    def close(self) -> None:
        """End the threads. Waits for requests in progress."""
        self._threads.shutdown()
        self._api.rest_client.pool_manager.clear()


def _allow() -> None:
    """Permit a write."""


async def _or_none(request: Awaitable[Object]) -> Object | None:
    try:
        return await request
    except KubernetesError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def _reason(content: bytes) -> str:
    """Return the message of the server, or what it sent instead."""
    try:
        value = json.loads(content)
    except ValueError:
        return content[:200].decode(errors="replace")
    return str(value.get("message", value)) if isinstance(value, dict) else str(value)
