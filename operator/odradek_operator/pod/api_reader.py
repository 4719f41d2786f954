"""Reads single objects from the API server with the service account of the pod, using only urllib.

`pod/broker` needs two or three objects once at start, so a client library would take longer than the rest of the start.
An `ApiReadError` is a failure that may be temporary; `read_within` retries it for a limited time.
"""

from __future__ import annotations

import json
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Final

from odradek_operator.errors import PodError
from odradek_operator.pod.addresses import Json
from odradek_operator.pod.identity import needed

logger = logging.getLogger(__name__)

ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

REQUEST_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 120.0
"""How long to retry before the pod ends and is restarted by its kubelet."""

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 8.0
MAX_ANSWER_BYTES: Final = 4 << 20
"""A node with its images and conditions has some tens of kilobytes."""


class ApiReadError(Exception):
    """A request failed, possibly temporarily. The message has the reason."""


class ApiReader:
    """The API server, with the permissions of the pod's account."""

    def __init__(
        self,
        url: str,
        *,
        token: Path | None = None,
        context: ssl.SSLContext | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """`url` without trailing slash. The token file is read for each request, because Kubernetes renews it."""
        self._url: Final = url
        self._token: Final = token
        self._request_seconds: Final = request_seconds
        # No proxies: the proxy settings of the pod's environment do not apply to the API server.
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        self._opener: Final = urllib.request.build_opener(*handlers)

    @classmethod
    def in_pod(
        cls,
        environment: Mapping[str, str],
        folder: Path = ACCOUNT_FOLDER,
        *,
        request_seconds: float = REQUEST_SECONDS,
    ) -> ApiReader:
        """Return the API server of this pod. Raises `PodError` if no service account token is mounted."""
        host, port = (needed(environment, f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
        try:
            context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        except OSError as error:
            raise PodError(
                f"{folder}/ca.crt cannot be read ({error.strerror}): the pod needs automountServiceAccountToken."
            ) from error
        bracketed = f"[{host}]" if ":" in host else host
        url = f"https://{bracketed}:{port}"
        return cls(url, token=folder / "token", context=context, request_seconds=request_seconds)

    def read(self, path: str) -> Json:
        """Return the object at an API path. Raises `ApiReadError`."""
        request = urllib.request.Request(self._url + path, headers={"Accept": "application/json"})
        try:
            if self._token is not None:
                request.add_header("Authorization", f"Bearer {self._token.read_text(encoding='ascii').strip()}")
            with self._opener.open(request, timeout=self._request_seconds) as answer:
                body = answer.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise ApiReadError(f"status {error.code} {error.reason}{_HINTS.get(error.code, '')}") from error
        except urllib.error.URLError as error:
            raise ApiReadError(f"it cannot be reached ({error.reason})") from error
        except (OSError, HTTPException, ValueError) as error:
            raise ApiReadError(f"it cannot be read ({error})") from error
        return _parsed(body)

    def node(self, name: str) -> Json:
        """Return a node."""
        return self.read(f"/api/v1/nodes/{name}")

    def service(self, namespace: str, name: str) -> Json:
        """Return a Service."""
        return self.read(f"/api/v1/namespaces/{namespace}/services/{name}")


_HINTS: Final = {
    401: ": the pod's token was rejected",
    403: ": the pod's service account may not read it (the operator and its chart create its Role or ClusterRole)",
    404: ": it does not exist (the operator creates it)",
}


def _parsed(body: bytes) -> Json:
    if len(body) > MAX_ANSWER_BYTES:
        raise ApiReadError(f"the response is longer than {MAX_ANSWER_BYTES} bytes")
    try:
        value: object = json.loads(body)
    except ValueError as error:
        raise ApiReadError(f"the response is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ApiReadError("the response is not a JSON object")
    return value


def read_within(
    seconds: float,
    what: str,
    read: Callable[[], Json],
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Json:
    """Call `read` at least once, with growing pauses. Raises the last `ApiReadError` after `seconds`."""
    deadline, wait, reported = clock() + seconds, FIRST_PAUSE_SECONDS, ""
    while True:
        try:
            return read()
        except ApiReadError as error:
            reason = str(error)
            if clock() + wait > deadline:
                raise
        if reason != reported:
            logger.warning("reading %s from the API server failed: %s; trying again", what, reason)
            reported = reason
        pause(wait)
        wait = min(2 * wait, LONGEST_PAUSE_SECONDS)


def read_patiently(
    what: str,
    read: Callable[[], Json],
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Json:
    """Call `read` for up to `PATIENCE_SECONDS`, then raise `PodError`."""
    try:
        return read_within(PATIENCE_SECONDS, what, read, pause=pause, clock=clock)
    except ApiReadError as error:
        raise PodError(
            f"{what} could not be read from the API server for {PATIENCE_SECONDS:.0f} s: {error}."
        ) from error
