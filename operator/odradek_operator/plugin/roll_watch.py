"""Follows a rolling restart until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator.objects.names import CLUSTER_LABEL
from odradek_operator.plugin.restart_requests import PluginError, existing_cluster
from odradek_operator.plugin.roll_progress import RollProgress, roll_progress

INTERVAL_SECONDS: Final = 2.0
"""Seconds between two reads."""


async def follow_roll(
    client: KubernetesClient, namespace: str, name: str, *, say: Callable[[str], None], timeout_seconds: float | None
) -> None:
    """Call `say` with each new message, and return when the roll is done.

    If the API server does not answer, it is asked again. Raises `PluginError` if the Cluster does not exist or after
    `timeout_seconds`, and `KubernetesError` if a request is refused.
    """
    said = ""
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                progress = await _read(client, namespace, name)
                if progress.message != said:
                    said = progress.message
                    say(said)
                if progress.is_done:
                    return
                await asyncio.sleep(INTERVAL_SECONDS)
    except TimeoutError:
        raise PluginError(
            f"The roll of Cluster {name} was not done after {timeout_seconds:g} s. The last state was: {said}"
        ) from None


async def _read(client: KubernetesClient, namespace: str, name: str) -> RollProgress:
    labelled = f"{CLUSTER_LABEL}={name}"
    try:
        cluster = await existing_cluster(client, namespace, name)
        sets = await client.list(Kind.STATEFUL_SET, namespace, selector=labelled)
        return roll_progress(cluster, sets, await client.list(Kind.POD, namespace, selector=labelled))
    except KubernetesError as error:
        if error.status in (0, HTTPStatus.TOO_MANY_REQUESTS) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return RollProgress(is_done=False, message=f"{error}. Asking again.")
        raise
