"""Asks the pods of a Mirror for their metrics over HTTP.

A pod that does not answer has no report, which is only visible in the status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek_operator.kube.bounded_http import ASK_SECONDS, PodAnswerError, bounded_get
from odradek_operator.mirrors.mirror_pods import MirrorPod
from odradek_operator.mirrors.mirror_report import MAX_METRICS_BYTES, MirrorReport, MirrorReportError
from odradek_operator.objects.names import METRICS_PORT

logger = logging.getLogger(__name__)

AskMirror = Callable[[MirrorPod], Awaitable[MirrorReport | None]]
"""Returns the report of a pod, or None if it has none."""


def metrics_url(pod: MirrorPod) -> str:
    """Return the URL of the metrics of a pod with an address."""
    return f"http://{pod.address}:{METRICS_PORT}/metrics"


async def ask_mirror(pod: MirrorPod) -> MirrorReport | None:
    """Ask a pod, for five seconds at most."""
    return None if pod.address is None else await ask_metrics(metrics_url(pod), name=pod.name)


async def ask_metrics(url: str, *, name: str, seconds: float = ASK_SECONDS) -> MirrorReport | None:
    """Return the report at a URL; None if there is none. `name`: the pod, for the log."""
    try:
        content = await bounded_get(url, max_bytes=MAX_METRICS_BYTES, seconds=seconds)
        # The metrics of many partitions take a while to read.
        return await asyncio.to_thread(MirrorReport.read, content)
    except (PodAnswerError, MirrorReportError) as error:
        logger.debug("pod %s has no report: %s", name, error)
        return None
