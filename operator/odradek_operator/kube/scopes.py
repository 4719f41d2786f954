"""Which namespaces this operator serves: one Lease for each, and one more for operators of all namespaces.

Enters: the namespaces to serve, from the settings or as their resources are seen. Leaves: calls to a listener when a
namespace may be served and when it may not be any more, a fence for writes, and a `Standing` for people. Called by
`operator` and `manager`. Whoever holds a namespace's Lease serves it, whatever its own list of namespaces is: operators
whose lists overlap exclude each other namespace by namespace. An operator of all namespaces first takes the Lease
`ALL_LEASE`, so that a second one stands by as a whole.
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
"""The Lease of a namespace, in that namespace."""
ALL_LEASE: Final = Reference(kind=Kind.LEASE, namespace="default", name="odradek-operator-all-namespaces")
"""In the one namespace that is always there and that workloads may write to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an operator serves, and what it would serve if others did not."""

    serving: tuple[str, ...] = ()
    standby: Mapping[str, str] = field(default_factory=dict)
    """Why it does not serve, by scope, as the end of a sentence."""

    def __str__(self) -> str:
        """A line for each part."""
        lines = []
        if self.serving:
            lines.append(f"serving {_list(self.serving)}")
        lines += [f"standby: {_subject(scope)} {why}" for scope, why in sorted(self.standby.items())]
        return "\n".join(lines) or "standby: nothing is served yet"


class ScopeListener(Protocol):
    """Who serves namespaces."""

    def gained(self, namespace: str) -> None:
        """The namespace may be served from now on."""
        ...

    async def lost(self, namespace: str) -> None:
        """The namespace may not be served any more; returns when nothing works on it."""
        ...


class Scopes(Protocol):
    """What the manager asks before it works on a namespace."""

    def seen(self, namespaces: Iterable[str]) -> None:
        """These namespaces, and no others, have something to look after."""
        ...

    def heard(self, namespace: str) -> None:
        """This namespace has something to look after."""
        ...

    def holds(self, namespace: str) -> bool:
        """Whether this operator serves the namespace now."""
        ...

    def is_closing(self, namespace: str) -> bool:
        """Whether the namespace is gone or being deleted: there only finalizers and left-overs are to be removed."""
        ...

    def fence(self, namespace: str) -> Fence | None:
        """For how long writes for the namespace may go on; None: for ever."""
        ...

    def standing(self) -> Standing:
        """For people."""
        ...


class Alone:
    """Without leader election: everything is served, always."""

    def __init__(self, namespaces: Iterable[str] = ()) -> None:
        """`namespaces` are those of the settings; none means all."""
        self._standing = Standing(serving=tuple(sorted(namespaces)) or (ALL,))

    def seen(self, namespaces: Iterable[str]) -> None:
        """Makes no difference."""

    def heard(self, namespace: str) -> None:
        """Makes no difference."""

    def holds(self, namespace: str) -> bool:
        """Always."""
        return True

    def is_closing(self, namespace: str) -> bool:
        """Served like any other."""
        return False

    def fence(self, namespace: str) -> Fence | None:
        """None."""
        return None

    def standing(self) -> Standing:
        """The settings' namespaces."""
        return self._standing


class Leases:
    """The Leases of one operator."""

    def __init__(self, client: KubernetesClient, settings: OperatorSettings) -> None:
        """`client` is for Leases alone, so that no other request delays a renewal. Nothing is taken before `run`."""
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
        """The former holder of `ALL_LEASE`, which stopped all its work when it lost that."""
        self._listener: ScopeListener | None = None

    async def run(self, listener: ScopeListener) -> None:
        """Take and keep Leases until cancelled; then all are given back, each after its work has stopped."""
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

    # What the manager asks and says

    def seen(self, namespaces: Iterable[str]) -> None:
        """Begin and end accordingly; an operator of a list keeps to its list."""
        if self._all is None:
            return
        self._wanted = set(namespaces)
        if self._all.remaining() > 0:
            for namespace in self._tasks.keys() - self._wanted:
                self._end(namespace)
            self._begin_all()

    def heard(self, namespace: str) -> None:
        """Begin at once."""
        if self._all is not None and namespace not in self._wanted:
            self._wanted.add(namespace)
            if self._all.remaining() > 0:
                self._begin_all()

    def holds(self, namespace: str) -> bool:
        """Whether its Lease, and where there is one the Lease of all namespaces, are held."""
        return namespace in self._tasks and min(self._leases[namespace].remaining(), self._whole()) > 0

    def is_closing(self, namespace: str) -> bool:
        """Only an operator that could serve the namespace says so."""
        return namespace in self._tasks and self._leases[namespace].closing and self._whole() > 0

    def fence(self, namespace: str) -> Fence | None:
        """The time that remains of its Leases."""
        return lambda: self._remaining(namespace)

    def standing(self) -> Standing:
        """Of all scopes."""
        if self._all is not None and self._all.remaining() <= 0:
            return Standing(standby={ALL: self._all.obstacle})
        held = {namespace for namespace in self._tasks if self.holds(namespace)}
        standby = {namespace: self._leases[namespace].obstacle for namespace in self._tasks.keys() - held}
        return Standing(serving=(*([ALL] if self._all is not None else []), *sorted(held)), standby=standby)

    # Inside

    def _whole(self) -> float:
        return self._timing.duration if self._all is None else self._all.remaining()

    def _remaining(self, namespace: str) -> float:
        lease = self._leases.get(namespace)
        if lease is None:
            return 0.0
        # Nobody can hold a Lease in a namespace that goes; what is done there is safe for two at a time.
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
        """Hold the Lease of a namespace whenever that is possible."""
        if after is not None:
            await asyncio.wait([after])
        lease = self._leases[namespace]
        while True:
            try:
                await lease.acquire()
                await self._hold(namespace, lease)
            except Exception:
                # A bug of ours with one namespace must not end the care for the others.
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
