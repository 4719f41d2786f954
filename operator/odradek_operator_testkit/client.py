"""A `KubernetesClient` over the API server in memory, without threads and sockets: for tests in virtual time.

Enters: a `KubernetesApi`. Leaves: the product's own client, of which only the last step, the request itself, is
replaced. The contract suite of the API server runs over this one, too.
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
    """How the connection of one client misbehaves. Changed by tests at any time."""

    cut: bool = False
    """Nothing reaches the server, and no answer comes."""
    delay_seconds: float = 0.0
    """After which a write reaches the server, whether somebody still waits for it or not."""


class MemoryClient(KubernetesClient):
    """As `KubernetesClient`."""

    def __init__(self, api: KubernetesApi, *, writes_per_second: float = 15.0, timeout_seconds: float = 15.0) -> None:
        """Needs no configuration: it calls the server directly."""
        self.api = api
        self._limit(writes_per_second, timeout_seconds)
        self.line = Line()
        self.landed: list[tuple[float, Asked]] = []
        """The writes of this client, and of its fenced copies, that the server has carried out, and when."""
        self._under_way: set[asyncio.Task[Object]] = set()

    async def _exchange(self, call: Call) -> Object:
        if self.line.cut:
            await asyncio.sleep(call.seconds)
            raise KubernetesError(str(call), 0, "no answer: the line is cut")
        if call.method == "GET" or not self.line.delay_seconds:
            return await self._carried_out(call)
        # A request that was sent goes on when its caller is cancelled, as in a thread.
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
        # As over a network, nothing is answered without a turn of the loop, before the server hears of it and after.
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
        """Nothing is held."""
