"""Requests to the Kubernetes API server: a few verbs over plain objects, off the event loop, writes bounded in rate.

Enters: objects and references. Leaves: objects, or a `KubernetesError` that says what was asked and why it failed.
Called by everything else in this room. The library `kubernetes` finds the server, its certificates and tokens, and
carries the requests in a few threads; nothing here retries, since every caller comes again by itself.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import time
from collections.abc import Callable
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
from odradek_operator.kube.api.pace import Pace
from odradek_operator.objects.names import FIELD_MANAGER

MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
PAGE: Final = 500
"""Objects in one answer to a list."""
MIN_WRITE_SECONDS: Final = 1.0
"""A write that would have less time than this before its fence is not sent."""

Fence = Callable[[], float]
"""Seconds for which writes may still be carried out; 0 or less when none may."""


class KubernetesError(OdradekError):
    """The API server refused a request or did not answer. `status` is 0 where there was no answer."""

    def __init__(self, request: str, status: int, reason: str) -> None:
        """`request` is verb and path, `reason` what the server or the network said."""
        super().__init__(f"Kubernetes: {request}: {f'{status} ' if status else ''}{reason}")
        self.status: Final = status
        self.reason: Final = reason


class FencedError(KubernetesError):
    """A write was not sent, since the Lease under which it was decided is lost or about to end."""

    def __init__(self, request: str) -> None:
        """`request` is verb and path."""
        super().__init__(request, 0, "not sent: this operator does not hold the Lease of the namespace any more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, as it is sent."""

    method: str
    path: str
    query: dict[str, str]
    body: Object | None
    content_type: str
    seconds: float
    """For the answer, at most."""
    fenced: bool
    """Whether the server must not carry it out after these seconds either."""

    def __str__(self) -> str:
        """Verb and path."""
        return f"{self.method} {self.path}"


def load_configuration() -> Configuration:
    """The pod's own account, or without one what KUBECONFIG names. Raises `KubernetesError` where there is neither."""
    configuration = Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise KubernetesError("configuration", 0, f"{error}; run in a pod, or set KUBECONFIG") from error
    return configuration


class KubernetesClient:
    """Make it on a loop, use it there only, `close()` it."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        writes_per_second: float = 15.0,
        timeout_seconds: float = 15.0,
        threads: int = 4,
    ) -> None:
        """Writes beyond the rate wait their turn; a request without an answer fails after `timeout_seconds`."""
        configuration.retries = urllib3.Retry(0)
        configuration.connection_pool_maxsize = threads
        self._api = ApiClient(configuration)
        self._timeout = timeout_seconds
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kubernetes")
        self._pace = Pace(writes_per_second)
        self._fence: Fence | None = None

    def fenced(self, fence: Fence | None) -> Self:
        """The same client, whose writes are sent only while `fence` leaves time for them; None: this client itself.

        A write that was sent ends before the fence does: neither this side nor the server waits for longer.
        """
        if fence is None:
            return self
        other = copy.copy(self)
        other._fence = fence
        return other

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """One object; None where it is not there."""
        return await self._or_none("GET", kind.path(namespace, name))

    async def list(self, kind: Kind, namespace: str | None, *, selector: str = "", fields: str = "") -> list[Object]:
        """All objects of a kind, in one or all namespaces; one moment's state of the store, page by page.

        `selector` is by labels, `fields` by the few fields that Kubernetes can select by.
        """
        found: list[Object] = []
        more = ""
        while True:
            query = {"limit": str(PAGE), "labelSelector": selector, "fieldSelector": fields, "continue": more}
            answer = await self._request("GET", kind.path(namespace), {k: v for k, v in query.items() if v})
            found += answer["items"]
            more = answer["metadata"].get("continue", "")
            if not more:
                return found

    async def apply(self, body: Object, *, force: bool = True) -> Object:
        """Server-side apply: make the object, or make our fields of it what `body` says, whoever set them before.

        Without `force` it fails with status 409 where somebody else has set such a field to another value.
        """
        reference = Reference.of(body)
        await self._pace.take()
        return await self._request(
            "PATCH",
            reference.kind.path(reference.namespace, reference.name),
            {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"},
            body,
            APPLY,
        )

    async def create(self, body: Object, *, paced: bool = True) -> Object:
        """Make an object; fails with status 409 where it is there already."""
        kind = Reference.of(body)
        if paced:
            await self._pace.take()
        return await self._request("POST", kind.kind.path(kind.namespace), {"fieldManager": FIELD_MANAGER}, body)

    async def replace(self, body: Object, *, paced: bool = True) -> Object:
        """Replace an object; fails with status 409 when it has changed since its `resourceVersion`."""
        which = Reference.of(body)
        if paced:
            await self._pace.take()
        path = which.kind.path(which.namespace, which.name)
        return await self._request("PUT", path, {"fieldManager": FIELD_MANAGER}, body)

    async def merge(self, which: Reference, patch: Object, *, sub: str | None = None) -> Object | None:
        """Merge a patch into an object or one of its sub-resources; None where the object is gone."""
        await self._pace.take()
        path = which.kind.path(which.namespace, which.name, sub)
        return await self._or_none("PATCH", path, {"fieldManager": FIELD_MANAGER}, patch, MERGE)

    async def delete(
        self,
        which: Reference,
        *,
        uid: str | None = None,
        version: str | None = None,
        force: bool = False,
        orphan: bool = False,
    ) -> bool:
        """Delete an object, only the one with this uid if given; False where that one is gone already.

        With a `version` (its `resourceVersion`) it must not have changed since; False where it has.
        `force` asks for no grace: the only way to be rid of a pod whose node will never answer again. `orphan` leaves
        what the object owns alone: it is owned by nobody then, and the object goes a moment later.
        """
        policy = "Orphan" if orphan else "Background"
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        wanted = {"uid": uid, "resourceVersion": version}
        if preconditions := {field: value for field, value in wanted.items() if value is not None}:
            body["preconditions"] = preconditions
        if force:
            body["gracePeriodSeconds"] = 0
        await self._pace.take()
        try:
            return await self._or_none("DELETE", which.kind.path(which.namespace, which.name), {}, body) is not None
        except KubernetesError as error:
            if error.status == HTTPStatus.CONFLICT and preconditions:
                return False
            raise

    async def _or_none(self, method: str, path: str, *rest: Any) -> Object | None:
        try:
            return await self._request(method, path, *rest)
        except KubernetesError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

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
        """In a thread, which may have been waited for."""
        seconds, query = self._timeout, call.query
        if call.fenced:
            seconds = min(seconds, until - time.monotonic())
            if seconds < MIN_WRITE_SECONDS:
                raise FencedError(str(call))
            # The server, too, gives the request up after this time.
            query = {**query, "timeout": f"{int(seconds * 1000)}ms"}
        headers = {"Accept": "application/json", "Content-Type": call.content_type, "User-Agent": FIELD_MANAGER}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], call.path, call.method, call.body)
        url = f"{self._api.configuration.host}{call.path}" + (f"?{urlencode(query)}" if query else "")
        data = json.dumps(call.body).encode() if call.content_type == APPLY else call.body
        try:
            response = self._api.call_api(call.method, url, headers, data, _request_timeout=seconds)
            # The body comes after the head, and may fail as the head may.
            content: bytes = response.read()  # type: ignore[no-untyped-call]
        except (urllib3.exceptions.HTTPError, OSError, ApiException) as error:
            raise KubernetesError(str(call), 0, f"no answer: {error}") from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise KubernetesError(str(call), response.status, _reason(content))
        try:
            value = json.loads(content)
        except ValueError as error:
            # Something between us and the API server answers in its place.
            raise KubernetesError(str(call), 0, f"no JSON: {_reason(content)}") from error
        if not isinstance(value, dict):
            raise KubernetesError(str(call), 0, f"no object: {_reason(content)}")
        return value

    def close(self) -> None:
        """End the threads; requests under way are waited for."""
        self._threads.shutdown()
        self._api.rest_client.pool_manager.clear()


def _reason(content: bytes) -> str:
    """The server's own sentence, or what it sent instead of one."""
    try:
        value = json.loads(content)
    except ValueError:
        return content[:200].decode(errors="replace")
    return str(value.get("message", value)) if isinstance(value, dict) else str(value)
