"""Acquires, renews and releases one Lease.

`acquire` returns when the Lease is held, `keep` when it is lost; `remaining` is how long writes under it are allowed.
Used by `scopes`, with a separate client. As in client-go, a Lease of another holder counts as abandoned when it has not
changed for its duration on the local monotonic clock. The holder stops a margin earlier, counted from before it sent
its last renewal.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 2.0
"""Seconds between two attempts to acquire a Lease, or to renew it after a failure."""
_TERMINATING: Final = "being terminated"
"""Part of the API server's message about a namespace that is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The times of a Lease, in seconds."""

    duration: int = 15
    """How long after a renewal no other operator acquires it."""

    @property
    def renew(self) -> float:
        """Seconds between two renewals."""
        return self.duration * 4 / 15

    @property
    def margin(self) -> float:
        """How long before the end of the Lease its holder stops, to allow for clocks and requests in flight."""
        return self.duration / 5

    @property
    def request(self) -> float:
        """Timeout of a request about a Lease; a lost request leaves time for another."""
        return self.duration / 5


class NoNamespaceError(Exception):
    """The Lease's namespace does not exist or is being deleted, so no operator can hold a Lease in it."""


class Lease:
    """A named Lease for one identity."""

    def __init__(
        self,
        client: KubernetesClient,
        which: Reference,
        identity: str,
        *,
        timing: Timing | None = None,
        ended: Callable[[], Container[str]] = frozenset,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`identity` must be unique among running processes. `ended` returns holders that are known to have stopped."""
        self.closing = False
        """Whether its namespace did not exist or was being deleted at the last request."""
        self.obstacle = "its Lease was not acquired yet"
        """Why it is not held, as the end of a message about its scope."""
        self.predecessor = ""
        """The previous holder, if it did not release the Lease; else empty."""
        self._client = client
        self._which = which
        self._identity = identity
        self._timing = timing or Timing()
        self._ended = ended
        self._wall = wall
        self._mine: Object | None = None
        """The object after the last write."""
        self._until = float("-inf")
        self._seen: tuple[str, float] = ("", 0.0)

    def remaining(self) -> float:
        """Seconds for which writes are still allowed; 0 or less if the Lease is not held."""
        return self._until - asyncio.get_running_loop().time()

    async def acquire(self) -> None:
        """Wait until the Lease is held. Retries while the API server does not answer."""
        logged = ""
        while True:
            try:
                holder = await self._try()
                if holder is None:
                    return
                self.obstacle = f"is served by {holder}"
            except NoNamespaceError:
                self.obstacle = "does not exist or is being deleted"
            except KubernetesError as error:
                self.obstacle = f"cannot be served: its Lease cannot be acquired: {error}"
            if self.obstacle != logged:
                logger.info("%s: standing by: the namespace %s", self._which, self.obstacle)
                logged = self.obstacle
            await asyncio.sleep(RETRY_SECONDS)

    async def keep(self) -> None:
        """Renew until the Lease is lost, because another operator acquired it or it could not be renewed in time."""
        pause = self._timing.renew
        while (left := self.remaining()) > 0:
            await asyncio.sleep(min(pause, left))
            try:
                async with asyncio.timeout(max(0.0, self.remaining())):
                    holder = await self._try()
            except TimeoutError:
                break
            except NoNamespaceError:
                self._lose("does not exist or is being deleted")
                logger.info("%s ended with its namespace", self._which)
                return
            except KubernetesError as error:
                logger.warning("%s could not be renewed: %s", self._which, error)
                pause = min(RETRY_SECONDS, self._timing.renew)
                continue
            if holder is not None:
                self._lose(f"is served by {holder}")
                logger.error("%s was acquired by %s", self._which, holder)
                return
            pause = self._timing.renew
        self._lose("cannot be served: its Lease could not be renewed in time")
        logger.error("%s could not be renewed for %g s", self._which, self._timing.duration - self._timing.margin)

    async def release(self) -> None:
        """Release the Lease, so that the next holder does not have to wait. Failures are logged: the Lease expires
        anyway."""
        self._lose("is not served: its Lease was released")
        try:
            lease = self._mine or await self._get()
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.replace(lease, paced=False)
        except KubernetesError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                logger.warning("%s was not released: %s", self._which, error)
        self._mine = None

    def _lose(self, obstacle: str) -> None:
        self._until = float("-inf")
        self.obstacle = obstacle

    async def _try(self) -> str | None:
        """Acquire or renew it. Returns None if it is held now, else the holder."""
        began = asyncio.get_running_loop().time()
        if self._mine is not None:
            try:
                self._held(await self._client.replace(self._taken(self._mine), paced=False), began)
                return None
            except KubernetesError as error:
                if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                    raise
                self._mine = None
        lease = await self._get()
        before = "" if lease is None else lease["spec"].get("holderIdentity") or ""
        holder = None if lease is None else self._holder(lease)
        if holder is not None:
            self.closing = False
            return holder
        try:
            written = await (self._create() if lease is None else self._client.replace(self._taken(lease), paced=False))
        except KubernetesError as error:
            if error.status == HTTPStatus.CONFLICT:
                return "another operator, which acquired it first"
            raise
        if before != self._identity:
            self.predecessor = before
        self._held(written, began)
        return None

    def _held(self, written: Object, began: float) -> None:
        self._mine = written
        self._until = began + self._timing.duration - self._timing.margin
        self.closing = False
        self.obstacle = ""

    async def _get(self) -> Object | None:
        found = await self._client.get(Kind.LEASE, self._which.namespace, self._which.name)
        # The object may have no specification.
        return None if found is None else {"spec": {}, **found}

    async def _create(self) -> Object:
        metadata = {"name": self._which.name, "namespace": self._which.namespace}
        lease = {"apiVersion": Kind.LEASE.api_version, "kind": Kind.LEASE.word, "metadata": metadata, "spec": {}}
        try:
            return await self._client.create(self._taken(lease), paced=False)
        except KubernetesError as error:
            terminating = error.status == HTTPStatus.FORBIDDEN and _TERMINATING in error.reason
            if terminating or error.status == HTTPStatus.NOT_FOUND:
                self.closing = True
                raise NoNamespaceError from error
            raise

    def _holder(self, lease: Object) -> str | None:
        """Return another holder; None if it is held by this process or free."""
        spec = lease["spec"]
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._identity) or holder in self._ended():
            return None
        now = asyncio.get_running_loop().time()
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, now)
        abandoned = now - self._seen[1] > spec.get("leaseDurationSeconds", self._timing.duration)
        return None if abandoned else str(holder)

    def _taken(self, lease: Object) -> Object:
        lease = copy.deepcopy(lease)
        spec = lease["spec"]
        now = self._wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        changes = spec.get("leaseTransitions", 0)
        if spec.get("holderIdentity") != self._identity:
            spec |= {"acquireTime": now, "leaseTransitions": changes + 1}
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.duration,
            "renewTime": now,
        }
        return lease
