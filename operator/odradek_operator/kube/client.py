"""Requests to the Kubernetes API server: a few verbs over plain objects, off the event loop, writes bounded in rate.

Enters: objects and references. Leaves: objects, or a `KubernetesError` that says what was asked and why it failed.
Called by everything else in this room. The library `kubernetes` finds the server, its certificates and tokens, and
carries the requests in a few threads; nothing here retries, since every caller comes again by itself.
"""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from odradek.base.errors import OdradekError
from odradek_operator.kube.api import Kind, Object, Reference
from odradek_operator.kube.pace import Pace
from odradek_operator.objects.names import FIELD_MANAGER

MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
PAGE: Final = 500
"""Objects in one answer to a list."""


class KubernetesError(OdradekError):
    """The API server refused a request or did not answer. `status` is 0 where there was no answer."""

    def __init__(self, request: str, status: int, reason: str) -> None:
        """`request` is verb and path, `reason` what the server or the network said."""
        super().__init__(f"Kubernetes: {request}: {f'{status} ' if status else ''}{reason}")
        self.status: Final = status
        self.reason: Final = reason


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

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """One object; None where it is not there."""
        return await self._or_none("GET", kind.path(namespace, name))

    async def list(self, kind: Kind, namespace: str | None, *, selector: str = "") -> list[Object]:
        """All objects of a kind, in one or all namespaces; one moment's state of the store, page by page."""
        found: list[Object] = []
        more = ""
        while True:
            query = {"limit": str(PAGE), "labelSelector": selector, "continue": more}
            answer = await self._request("GET", kind.path(namespace), {k: v for k, v in query.items() if v})
            found += answer["items"]
            more = answer["metadata"].get("continue", "")
            if not more:
                return found

    async def apply(self, body: Object) -> Object:
        """Server-side apply: make the object, or make our fields of it what `body` says, whoever set them before."""
        reference = Reference.of(body)
        await self._pace.take()
        return await self._request(
            "PATCH",
            reference.kind.path(reference.namespace, reference.name),
            {"fieldManager": FIELD_MANAGER, "force": "true"},
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
        self, which: Reference, *, uid: str | None = None, force: bool = False, orphan: bool = False
    ) -> bool:
        """Delete an object, only the one with this uid if given; False where that one is gone already.

        `force` asks for no grace: the only way to be rid of a pod whose node will never answer again. `orphan` leaves
        what the object owns alone: it is owned by nobody then, and the object goes a moment later.
        """
        policy = "Orphan" if orphan else "Background"
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if force:
            body["gracePeriodSeconds"] = 0
        await self._pace.take()
        try:
            return await self._or_none("DELETE", which.kind.path(which.namespace, which.name), {}, body) is not None
        except KubernetesError as error:
            if error.status == HTTPStatus.CONFLICT and uid is not None:
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
        loop = asyncio.get_running_loop()
        arguments = (method, path, query or {}, body, content_type)
        return await loop.run_in_executor(self._threads, lambda: self._send(*arguments))

    def _send(self, method: str, path: str, query: dict[str, str], body: Object | None, content_type: str) -> Object:
        """In a thread."""
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": FIELD_MANAGER}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = f"{self._api.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        data = json.dumps(body).encode() if content_type == APPLY else body
        try:
            response = self._api.call_api(method, url, headers, data, _request_timeout=self._timeout)
            # The body comes after the head, and may fail as the head may.
            content: bytes = response.read()  # type: ignore[no-untyped-call]
        except (urllib3.exceptions.HTTPError, OSError, ApiException) as error:
            raise KubernetesError(f"{method} {path}", 0, f"no answer: {error}") from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise KubernetesError(f"{method} {path}", response.status, _reason(content))
        try:
            value = json.loads(content)
        except ValueError as error:
            # Something between us and the API server answers in its place.
            raise KubernetesError(f"{method} {path}", 0, f"no JSON: {_reason(content)}") from error
        if not isinstance(value, dict):
            raise KubernetesError(f"{method} {path}", 0, f"no object: {_reason(content)}")
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
