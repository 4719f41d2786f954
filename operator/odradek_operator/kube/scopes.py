"""The namespaces that this operator serves: one Lease for each, and one for operators of all namespaces.

`operator` and `manager` use it. The namespaces come from the settings, or are added when they have resources. A
listener is called when this operator may serve a namespace, and when it no longer may. A fence limits writes.
`Standing` is for the probes, the metrics and the log. The holder of a namespace's Lease serves it, even if the settings
of other operators name the namespace. An operator of all namespaces first acquires the Lease `ALL_LEASE`, so that a
second one is on standby for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from odradek_operator.kube.api.api_client import Fence, KubernetesClient
from odradek_operator.kube.api.object_kinds import Kind, Reference
from odradek_operator.kube.lease import RETRY_SECONDS, Lease, Timing
from odradek_operator.kube.operator_settings import OperatorSettings

logger = logging.getLogger(__name__)

ALL: Final = "*"
"""The scope of an operator of all namespaces."""
LEASE: Final = "odradek-operator"
"""Name of the Lease of a namespace, in that namespace."""
ALL_LEASE: Final = Reference(kind=Kind.LEASE, namespace="default", name="odradek-operator-all-namespaces")
"""The namespace of the Lease for all namespaces; it always exists, and workloads may write to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The scopes that an operator serves, and those for which it is on standby."""

    serving: tuple[str, ...] = ()
    standby: Mapping[str, str] = field(default_factory=dict)
    """Why a scope is not served, as the end of a message."""

    def __str__(self) -> str:
        """One line per part."""
        lines = []
        if self.serving:
            lines.append(f"serving {_list(self.serving)}")
        lines += [f"standby: {_subject(scope)} {why}" for scope, why in sorted(self.standby.items())]
        return "\n".join(lines) or "standby: nothing is served yet"


class ScopeListener(Protocol):
    """Gets notified when this operator begins and stops to serve a namespace."""

    def gained(self, namespace: str) -> None:
        """The namespace may be served from now on."""
        ...

    async def lost(self, namespace: str) -> None:
        """The namespace may no longer be served. Returns once no task works on it."""
        ...


class Scopes(Protocol):
    """Decides which namespaces this operator serves."""

    def set_namespaces(self, namespaces: Iterable[str]) -> None:
        """Set the namespaces that have resources."""
        ...

    def add_namespace(self, namespace: str) -> None:
        """Add a namespace that has resources."""
        ...

    def holds(self, namespace: str) -> bool:
        """Whether this operator serves the namespace now."""
        ...

    def is_closing(self, namespace: str) -> bool:
        """Whether the namespace is deleted or being deleted: only finalizers and leftovers are then removed."""
        ...

    def fence(self, namespace: str) -> Fence | None:
        """How long writes to the namespace are permitted; None for no limit."""
        ...

    def standing(self) -> Standing:
        """Return the served scopes."""
        ...


class Alone:
    """Without leader election: everything is always served."""

    def __init__(self, namespaces: Iterable[str] = ()) -> None:
        """`namespaces` are those of the settings; none means all."""
        self._standing = Standing(serving=tuple(sorted(namespaces)) or (ALL,))

    def set_namespaces(self, namespaces: Iterable[str]) -> None:
        """Does nothing."""

    def add_namespace(self, namespace: str) -> None:
        """Does nothing."""

    def holds(self, namespace: str) -> bool:
        """Always true."""
        return True

    def is_closing(self, namespace: str) -> bool:
        """Always false: it is served like any other."""
        return False

    def fence(self, namespace: str) -> Fence | None:
        """No limit."""
        return None

    def standing(self) -> Standing:
        """The namespaces in the settings."""
        return self._standing


class Leases:
    """The Leases of one operator."""

    def __init__(self, client: KubernetesClient, settings: OperatorSettings) -> None:
        """`client` is used for Leases only, so that no other request delays a renewal. Nothing is acquired before
        `run`."""
        self._client = client
        self._namespaces = settings.namespaces
        self._identity = f"{settings.own_namespace}/{settings.identity}"
        self._timing = Timing(duration=settings.lease_seconds)
        self._all = None if self._namespaces else Lease(client, ALL_LEASE, self._identity, timing=self._timing)
        self._leases: dict[str, Lease] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._wanted: set[str] = set(self._namespaces)
        self._over: frozenset[str] = frozenset()
        """The former holder of `ALL_LEASE`, which stopped all its work when it lost that Lease."""
        self._listener: ScopeListener | None = None

    async def run(self, listener: ScopeListener) -> None:
        """Acquire and renew Leases until cancelled. Then each is released after its work has stopped."""
        self._listener = listener
        try:
            if self._all is None:
                self._begin_all()
                await asyncio.Event().wait()
            while self._all is not None:
                await self._all.acquire()
                logger.info("serving all namespaces")
                self._over = frozenset({self._all.predecessor} - {""})
                self._begin_all()
                await self._all.keep()
                await self._end_all()
                self._over = frozenset()
        finally:
            await self._end_all()
            if self._all is not None:
                await self._all.release()

    # Methods for the manager

    def set_namespaces(self, namespaces: Iterable[str]) -> None:
        """Start and end the Leases of namespaces. Without effect if the settings have a list of namespaces."""
        if self._all is None:
            return
        self._wanted = set(namespaces)
        if self._all.remaining() > 0:
            for namespace in self._tasks.keys() - self._wanted:
                self._end(namespace)
            self._begin_all()

    def add_namespace(self, namespace: str) -> None:
        """Start to acquire the Lease of a namespace at once."""
        if self._all is not None and namespace not in self._wanted:
            self._wanted.add(namespace)
            if self._all.remaining() > 0:
                self._begin_all()

    def holds(self, namespace: str) -> bool:
        """Whether its Lease, and the Lease of all namespaces if there is one, are held."""
        return namespace in self._tasks and min(self._leases[namespace].remaining(), self._whole()) > 0

    def is_closing(self, namespace: str) -> bool:
        """Whether the namespace is being deleted; only if this operator could serve it."""
        return namespace in self._tasks and self._leases[namespace].closing and self._whole() > 0

    def fence(self, namespace: str) -> Fence | None:
        """Remaining time of its Leases."""
        return lambda: self._remaining(namespace)

    def standing(self) -> Standing:
        """The standing of all scopes."""
        if self._all is not None and self._all.remaining() <= 0:
            return Standing(standby={ALL: self._all.obstacle})
        held = {namespace for namespace in self._tasks if self.holds(namespace)}
        standby = {namespace: self._leases[namespace].obstacle for namespace in self._tasks.keys() - held}
        return Standing(serving=(*([ALL] if self._all is not None else []), *sorted(held)), standby=standby)

    # Implementation

    def _whole(self) -> float:
        return self._timing.duration if self._all is None else self._all.remaining()

    def _remaining(self, namespace: str) -> float:
        lease = self._leases.get(namespace)
        if lease is None:
            return 0.0
        # No Lease can be held in a namespace that is being deleted. The work there is safe with two operators.
        return self._whole() if lease.closing else min(lease.remaining(), self._whole())

    def _begin_all(self) -> None:
        for namespace in self._wanted - self._tasks.keys():
            which = Reference(kind=Kind.LEASE, namespace=namespace, name=LEASE)
            self._leases[namespace] = Lease(
                self._client, which, self._identity, timing=self._timing, ended=lambda: self._over
            )
            after = self._ending.pop(namespace, None)
            task = asyncio.create_task(self._serve(namespace, after), name=f"lease of {namespace}")
            self._tasks[namespace] = task

    def _end(self, namespace: str) -> None:
        task = self._ending[namespace] = self._tasks.pop(namespace)
        task.cancel()
        task.add_done_callback(lambda done: self._ended(namespace, done))

    def _ended(self, namespace: str, task: asyncio.Task[None]) -> None:
        if self._ending.get(namespace) is task:
            del self._ending[namespace]
        if namespace not in self._tasks:
            self._leases.pop(namespace, None)

    async def _end_all(self) -> None:
        for namespace in list(self._tasks):
            self._end(namespace)
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    async def _serve(self, namespace: str, after: asyncio.Task[None] | None) -> None:
        """Hold the Lease of a namespace whenever possible."""
        if after is not None:
            await asyncio.wait([after])
        lease = self._leases[namespace]
        while True:
            try:
                await lease.acquire()
                await self._hold(namespace, lease)
            except Exception:
                # A bug that affects one namespace must not stop the others.
                logger.exception("the Lease of namespace %s", namespace)
                await asyncio.sleep(RETRY_SECONDS)

    async def _hold(self, namespace: str, lease: Lease) -> None:
        assert self._listener is not None, "nothing is taken before `run`"
        logger.info("serving namespace %s", namespace)
        try:
            self._listener.gained(namespace)
            await lease.keep()
        finally:
            await self._listener.lost(namespace)
            logger.info("namespace %s is no longer served by this operator", namespace)
            await lease.release()


def _subject(scope: str) -> str:
    return "the scope of all namespaces" if scope == ALL else f"namespace {scope}"


def _list(scopes: Iterable[str]) -> str:
    named = [scope for scope in scopes if scope != ALL]
    whole = ["all namespaces"] if ALL in scopes else []
    return ": ".join([*whole, ", ".join(named)]) if named and whole else ", ".join(whole + named)
