"""Sizes and lag for statuses, from each cluster's exporter over HTTP, cached.

The loops use the last report in each round. The exporter is queried periodically in the background, so that a round
never waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from odradek_operator.crds import Cluster
from odradek_operator.exporter.report import Report, ReportError, decode
from odradek_operator.objects import names

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 8.0
"""Interval between two queries, so that a change appears in `kubectl get` within 10 s."""
STALE_SECONDS: Final = 120.0
"""Age after which a report is no longer used."""
_MAX_BYTES: Final = 64 << 20
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)


@dataclass(slots=True)
class _Known:
    report: Report | None = None
    asked_at: float = -1e9
    read_at: float = -1e9
    task: asyncio.Task[None] | None = None
    trouble: str = field(default="")


def exporter_url(cluster: Cluster) -> str:
    """URL of a cluster's report."""
    return f"http://{names.exporter(cluster.name)}.{cluster.namespace}.svc:{names.METRICS_PORT}/topics"


class Reports:
    """The exporters of all clusters."""

    def __init__(self, url_of: Callable[[Cluster], str] = exporter_url) -> None:
        """An exporter is queried once its report is needed. `url_of` returns its URL."""
        self._url_of = url_of
        self._known: dict[tuple[str, str], _Known] = {}
        self._session: aiohttp.ClientSession | None = None

    async def of(self, cluster: Cluster) -> Report | None:
        """Return the last report, unless it is too old. Never waits."""
        key = (cluster.namespace, cluster.name)
        if not cluster.monitoring.exporter:
            self._known.pop(key, None)
            return None
        known = self._known.setdefault(key, _Known())
        now = asyncio.get_running_loop().time()
        if now - known.asked_at >= ASK_SECONDS and (known.task is None or known.task.done()):
            known.asked_at = now
            known.task = asyncio.create_task(self._ask(self._url_of(cluster), known), name=f"report of {cluster.name}")
        return known.report if now - known.read_at < STALE_SECONDS else None

    async def _ask(self, url: str, known: _Known) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        try:
            async with self._session.get(url) as answer:
                answer.raise_for_status()
                known.report = decode(await _whole(answer.content))
            known.read_at = asyncio.get_running_loop().time()
            known.trouble = ""
        except (aiohttp.ClientError, TimeoutError, ReportError) as error:
            trouble = f"{url} did not return sizes and lag: {error or type(error).__name__}"
            if trouble != known.trouble:
                known.trouble = trouble
                logger.info("%s", trouble)

    async def close(self) -> None:
        """Cancel queries in progress. Idempotent."""
        for known in self._known.values():
            if known.task is not None:
                known.task.cancel()
                await asyncio.gather(known.task, return_exceptions=True)
        self._known.clear()
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _whole(content: aiohttp.StreamReader) -> bytes:
    """Read the whole response. Raises `ReportError` if it is longer than a report can be."""
    found = bytearray()
    async for piece in content.iter_any():
        found += piece
        if len(found) > _MAX_BYTES:
            raise ReportError(f"it is longer than {_MAX_BYTES} bytes")
    return bytes(found)
