"""One operator at work: a Lease in the operator's own namespace, taken, renewed, and given back at the end.

Enters: a client and who we are. Leaves: `acquire` returns when we hold the lease; `keep` returns when we have lost it,
and then the process must end, because another may be at work. What others wrote is judged by our own monotonic clock:
a lease counts as abandoned when it has not changed for its duration since we first saw it so (as in client-go).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from odradek_operator.kube.api import Kind, Object, Reference
from odradek_operator.kube.client import KubernetesClient, KubernetesError

logger = logging.getLogger(__name__)

DURATION_SECONDS: Final = 15
RENEW_SECONDS: Final = 4.0
RETRY_SECONDS: Final = 2.0
MARGIN_SECONDS: Final = 3.0
"""So long before the lease ends for others, we stop believing in it."""


class Lease:
    """A named lease for one identity."""

    def __init__(
        self,
        client: KubernetesClient,
        which: Reference,
        identity: str,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`identity` must be another for each process: pod name and uid."""
        self._client = client
        self._which = which
        self._identity = identity
        self._wall = wall
        self._seen: tuple[str, float] = ("", 0.0)

    async def acquire(self) -> None:
        """Wait until the lease is ours. An API server that does not answer is waited for."""
        told = ""
        while True:
            try:
                holder = await self._try()
            except KubernetesError as error:
                logger.warning("the lease cannot be taken yet: %s", error)
                holder = "nobody who can be asked"
            if holder is None:
                return
            if holder != told:
                logger.info("waiting: %s is at work, as %s says", holder, self._which)
                told = holder
            await asyncio.sleep(RETRY_SECONDS)

    async def keep(self) -> None:
        """Renew until the lease is lost, because another took it or because it could not be renewed in time."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while loop.time() - renewed < DURATION_SECONDS - MARGIN_SECONDS:
            await asyncio.sleep(RENEW_SECONDS if loop.time() - renewed < RENEW_SECONDS else RETRY_SECONDS)
            began = loop.time()
            try:
                async with asyncio.timeout_at(renewed + DURATION_SECONDS - MARGIN_SECONDS):
                    holder = await self._try()
            except TimeoutError:
                break
            except KubernetesError as error:
                logger.warning("the lease could not be renewed: %s", error)
                continue
            if holder is not None:
                logger.error("the lease was taken by %s", holder)
                return
            renewed = began
        logger.error("the lease could not be renewed for %d s", DURATION_SECONDS - MARGIN_SECONDS)

    async def release(self) -> None:
        """Give it back, so that the next need not wait. What fails is told only: the lease ends by itself."""
        try:
            lease = await self._client.get(Kind.LEASE, self._which.namespace, self._which.name)
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.replace(lease, paced=False)
        except KubernetesError as error:
            logger.warning("the lease was not given back: %s", error)

    async def _try(self) -> str | None:
        """Take or renew it; None when it is ours now, else who has it."""
        lease = await self._client.get(Kind.LEASE, self._which.namespace, self._which.name)
        try:
            if lease is None:
                await self._client.create(self._fresh(), paced=False)
                return None
            holder = self._holder(lease)
            if holder is not None:
                return holder
            await self._client.replace(self._taken(lease), paced=False)
        except KubernetesError as error:
            if error.status == HTTPStatus.CONFLICT:
                return "somebody who was faster"
            raise
        return None

    def _holder(self, lease: Object) -> str | None:
        """Who else has it now; None where it is ours or free."""
        spec = lease["spec"]
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._identity):
            return None
        now = asyncio.get_running_loop().time()
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, now)
        ended = now - self._seen[1] > spec.get("leaseDurationSeconds", DURATION_SECONDS)
        return None if ended else str(holder)

    def _fresh(self) -> Object:
        metadata = {"name": self._which.name, "namespace": self._which.namespace}
        lease = {"apiVersion": Kind.LEASE.api_version, "kind": Kind.LEASE.word, "metadata": metadata, "spec": {}}
        return self._taken(lease)

    def _taken(self, lease: Object) -> Object:
        spec = lease["spec"]
        now = self._wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        changes = spec.get("leaseTransitions", 0)
        if spec.get("holderIdentity") != self._identity:
            spec |= {"acquireTime": now, "leaseTransitions": changes + 1}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": now}
        return lease
