"""A `KubernetesClient` of the in-memory API server, without threads and sockets, for tests in virtual time.

It is the client of the product, except that requests are passed to a `KubernetesApi` instead of a socket. The contract
tests of the API server also use it.
"""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass
from http import HTTPStatus

from odradek_operator.kube.api.api_client import Call, KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Object
from odradek_operator_testkit.api import Asked, KubernetesApi


@dataclass(slots=True)
class Line:
    """The faults of the connection of one client. Tests change them at any time."""

    cut: bool = False
    """Whether the connection is cut: no request reaches the server, and no response reaches the client."""
    delay_seconds: float = 0.0
    """Delay after which a write reaches the server, even if its caller was cancelled."""


class MemoryClient(KubernetesClient):
    """A `KubernetesClient` that calls the in-memory API server."""

    def __init__(self, api: KubernetesApi, *, writes_per_second: float = 15.0, timeout_seconds: float = 15.0) -> None:
        """Create a client. It needs no configuration, because it calls the server directly."""
        self.api = api
        self._limit(writes_per_second, timeout_seconds)
        self.line = Line()
        self.landed: list[tuple[float, Asked]] = []
        """The executed writes of this client and its fenced copies, with their times."""
        self._under_way: set[asyncio.Task[Object]] = set()

    async def _exchange(self, call: Call) -> Object:
        if self.line.cut:
            await asyncio.sleep(call.seconds)
            raise KubernetesError(str(call), 0, "no answer: the line is cut")
        if call.method == "GET" or not self.line.delay_seconds:
            return await self._carried_out(call)
        # As with a real server, a request that was sent is executed even if its caller is cancelled.
        task = asyncio.create_task(self._delayed(call))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _delayed(self, call: Call) -> Object:
        await asyncio.sleep(min(self.line.delay_seconds, call.seconds))
        if self.line.delay_seconds >= call.seconds:
            raise KubernetesError(str(call), 0, "no answer in time")
        return await self._carried_out(call)

    async def _carried_out(self, call: Call) -> Object:
        asked = Asked(
            method=call.method,
            path=call.path,
            query=call.query,
            content_type=call.content_type,
            body=copy.deepcopy(call.body),
        )
        faults = self.api.faults
        concerned = faults.concerns(asked)
        # As over a network, the event loop runs other tasks before and after the server handles a request.
        delay = faults.delay_seconds if concerned else 0.0
        await asyncio.sleep(min(delay, call.seconds))
        if faults.refuses or delay >= call.seconds:
            raise KubernetesError(str(call), 0, "no answer: connection refused")
        answer = self.api.answer(asked)
        if asked.is_write and answer.status < HTTPStatus.BAD_REQUEST:
            self.landed.append((asyncio.get_running_loop().time(), asked))
        await asyncio.sleep(0)
        if faults.loses_answers and concerned:
            raise KubernetesError(str(call), 0, "no answer: connection reset")
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise KubernetesError(str(call), answer.status, str(answer.document["message"]))
        value: Object = json.loads(json.dumps(answer.document))
        return value

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
