"""A `KubernetesClient` over the API server in memory, without threads and sockets: for tests in virtual time.

Enters: a `KubernetesApi`. Leaves: the product's own client, of which only the last step, the request itself, is
replaced. The contract suite of the API server runs over this one, too.
"""

from __future__ import annotations

import asyncio
import copy
import json
from http import HTTPStatus

from odradek_operator.kube.api import Object
from odradek_operator.kube.client import KubernetesClient, KubernetesError
from odradek_operator.kube.pace import Pace
from odradek_operator.testing.api import Asked, KubernetesApi


class MemoryClient(KubernetesClient):
    """As `KubernetesClient`."""

    def __init__(self, api: KubernetesApi, *, writes_per_second: float = 15.0, timeout_seconds: float = 15.0) -> None:
        """Needs no configuration: it has the server in its hands."""
        self.api = api
        self._pace = Pace(writes_per_second)
        self._timeout = timeout_seconds

    async def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        asked = Asked(method=method, path=path, query=query or {}, content_type=content_type, body=copy.deepcopy(body))
        faults = self.api.faults
        concerned = faults.concerns(asked)
        # As over a network, nothing is answered without a turn of the loop, before the server hears of it and after.
        delay = faults.delay_seconds if concerned else 0.0
        await asyncio.sleep(min(delay, self._timeout))
        if faults.refuses or delay >= self._timeout:
            raise KubernetesError(f"{method} {path}", 0, "no answer: connection refused")
        answer = self.api.answer(asked)
        await asyncio.sleep(0)
        if faults.loses_answers and concerned:
            raise KubernetesError(f"{method} {path}", 0, "no answer: connection reset")
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise KubernetesError(f"{method} {path}", answer.status, str(answer.document["message"]))
        value: Object = json.loads(json.dumps(answer.document))
        return value

    def close(self) -> None:
        """Nothing is held."""
