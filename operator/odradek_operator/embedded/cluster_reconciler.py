"""Brings the broker processes to what the Cluster resource specifies: one round observes, decides and acts.

`watcher` calls `round` with the resources and a snapshot of ZooKeeper. The decisions are those of the operator
(`lifecycle/cluster_plan`); this module carries them out over local processes. No decision depends on an earlier round.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from odradek.zk.layout import LayoutError
from odradek.zk.port import ZkClient, ZkError
from odradek_operator.crds import Cluster, Wanted
from odradek_operator.embedded.broker_processes import BrokerProcesses
from odradek_operator.embedded.layout import Ports, ServedListeners, addresses, served_listeners
from odradek_operator.embedded.observed_processes import CURRENT, ObservedBroker, kubernetes_state, local_cluster
from odradek_operator.embedded.ports import LOOPBACK, is_free
from odradek_operator.embedded.progress import Event, ProgressKind, Report
from odradek_operator.embedded.secret_files import SecretFiles
from odradek_operator.embedded.size_record import SizeRecord
from odradek_operator.lifecycle import dynamic_listeners, resize
from odradek_operator.lifecycle.cluster_plan import decide
from odradek_operator.lifecycle.observed_cluster import Quorum
from odradek_operator.lifecycle.replicas import listed
from odradek_operator.lifecycle.spreading import crowded_notices
from odradek_operator.lifecycle.steps import (
    ClusterDecision,
    LiftThrottle,
    MoveReplicas,
    RecordBrokers,
    ReleaseClaims,
    RestartPod,
    Step,
    Waiting,
    ZooKeeperStep,
)
from odradek_operator.objects import names
from odradek_operator.objects.cluster_properties import properties_of
from odradek_operator.topics.topic_decisions import wanted_factors
from odradek_operator.topics.zookeeper_reader import read_snapshot
from odradek_operator.topics.zookeeper_state import Snapshot
from odradek_operator.topics.zookeeper_writer import OutdatedError, carry_out_step

logger = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 5.0
"""What waits is reported after this time: most of it passes while a broker starts or catches up."""

MAX_TRIES: Final = 10
"""Tries of a write whose conditions others change."""

ROLLED: Final = "RolledOut"
BROKERS_CHANGED: Final = "BrokersChanged"


@dataclass(slots=True)
class Waits:
    """What waits at present."""

    since: dict[Waiting, float] = field(default_factory=dict)
    """When each was first seen."""
    told: set[Waiting] = field(default_factory=set)

    def due(self, waiting: tuple[Waiting, ...], now: float) -> list[Waiting]:
        """Return what has to be reported now. Each is reported once, until it has passed."""
        self.since = {one: self.since.get(one, now) for one in waiting}
        self.told &= set(waiting)
        due = [
            one
            for one, since in self.since.items()
            if one not in self.told and (one.needs_person or now - since >= PATIENCE_SECONDS)
        ]
        self.told.update(due)
        return due


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What one round has read and decided."""

    zk: ZkClient
    cluster: Cluster
    snapshot: Snapshot
    observed: list[ObservedBroker]
    decision: ClusterDecision

    @property
    def subject(self) -> str:
        """The cluster, in events."""
        return f"cluster {self.cluster.name}"


class ClusterReconciler:
    """Reconciles the brokers of one cluster."""

    def __init__(
        self,
        brokers: BrokerProcesses,
        ports: Ports,
        record: SizeRecord,
        report: Report,
        *,
        secrets: SecretFiles,
        changed: Callable[[], None],
    ) -> None:
        """`secrets`: those of the cluster. `changed` is called when brokers were added or removed."""
        self._brokers = brokers
        self._ports = ports
        self._record = record
        self._report = report
        self._changed = changed
        self._secrets = secrets
        self._waits = Waits()
        self._rolling = False
        self._notices: tuple[str, ...] = ()

    @property
    def starting(self) -> frozenset[int]:
        """Ids of the brokers that are being started or restarted on purpose."""
        return self._brokers.starting

    @property
    def rolling(self) -> bool:
        """Whether a rolling restart is in progress."""
        return self._rolling

    def listeners(self, cluster: Cluster, *, brokers: Iterable[int] = ()) -> ServedListeners:
        """Return the listeners that this cluster, with these brokers in addition, would serve.

        Raises `EmbeddedError` if there is none.
        """
        ids = cluster.brokers.ids().union(self._brokers.ids, brokers)
        taken = self._ports.uses(ids, own_zookeeper=cluster.zookeeper.connect is None)
        return served_listeners(cluster, taken, brokers=ids)

    def addresses(self, cluster: Cluster) -> dict[str, str]:
        """Return the addresses of the served listeners, by name."""
        return addresses(self._ports, self.listeners(cluster), self._brokers.ids)

    # Start

    async def prepare(self, zk: ZkClient, cluster: Cluster, snapshot: Snapshot) -> None:
        """Add the brokers that the cluster has, none of which runs yet.

        They are those that it had before, if they still have replicas, and those in the resource.
        """
        local = local_cluster(cluster)
        state = kubernetes_state(local, (), count=None, stored=self._brokers.stored(), record=self._record.record)
        count = max(cluster.brokers.replicas, resize.present_size(local, state, snapshot))
        per_pod = resize.per_pod(local, state, snapshot)
        ids = sorted(cluster.brokers.ids(count, per_pod))
        await self._settle_secrets(cluster, ids)
        self._brokers.follow(cluster, self.listeners(cluster, brokers=ids))
        self._record.set_brokers(max(count, self._record.record.brokers or 0), per_pod)
        for broker in ids:
            self._brokers.add(broker)
            await self._remove_listeners(zk, broker)

    async def _settle_secrets(self, cluster: Cluster, brokers: Collection[int]) -> None:
        """Complete the certificates, also of brokers that are only about to start. Raises `EmbeddedError`."""
        if cluster.is_secured:
            await asyncio.to_thread(self._secrets.settle, cluster, brokers)

    async def _remove_listeners(self, zk: ZkClient, broker: int) -> None:
        """Remove our listeners of a broker from ZooKeeper before it starts, because its file has the current ones.

        If that fails, the broker starts nevertheless: the next round tries again.
        """
        try:
            for _ in range(MAX_TRIES):
                snapshot = await read_snapshot(zk, ())
                step = dynamic_listeners.removed(broker, snapshot)
                if step is None or snapshot.controller_epoch_version is None:
                    return
                try:
                    await carry_out_step(zk, step, epoch_version=snapshot.controller_epoch_version)
                except OutdatedError as error:
                    # The controller changes if this broker was it.
                    logger.info("trying again: %s", error)
        except (ZkError, LayoutError) as error:
            logger.warning("listeners of broker %d stay in ZooKeeper until the next round: %s", broker, error)

    # Rounds

    async def round(self, zk: ZkClient, wanted: Wanted, snapshot: Snapshot) -> ClusterDecision:
        """Take the next steps. `snapshot` must contain all topics.

        Raises `ZkError`, `OutdatedError` if the state in ZooKeeper has changed since, and `EmbeddedError`.
        """
        cluster = local_cluster(wanted.cluster)
        await self._settle_secrets(cluster, cluster.brokers.ids().union(self._brokers.ids))
        self._brokers.follow(cluster, self.listeners(cluster))
        observed = await self._brokers.observe(snapshot)
        count, per_pod = _size(cluster, self._brokers.ids)
        state = kubernetes_state(
            cluster,
            observed,
            count=count,
            per_pod=per_pod,
            stored=self._brokers.stored(),
            record=self._record.record,
        )
        decision = decide(
            cluster,
            state,
            snapshot,
            wanted_hashes={names.kafka(cluster.name): CURRENT, names.zookeeper(cluster.name): CURRENT},
            wanted_dynamic=properties_of(cluster)[1],
            wanted_factors=wanted_factors(wanted, snapshot),
            quorum=Quorum(),
            now=time.time(),
            keep_others=True,
        )
        seen = _Seen(zk=zk, cluster=cluster, snapshot=snapshot, observed=observed, decision=decision)
        self._tell_notices(cluster, decision)
        busy_ports = () if cluster.paused else await self._change_listeners(seen)
        await self._resize(seen)
        for step in decision.steps:
            await self._carry_out(seen, step)
        self._tell_waiting(seen, busy_ports)
        self._tell_rolled(seen)
        return decision

    async def _change_listeners(self, seen: _Seen) -> tuple[Waiting, ...]:
        """Open and close listeners of running brokers. Returns what waits for a port."""
        if seen.snapshot.controller_epoch_version is None:
            return ()
        waiting: list[Waiting] = []
        for one in seen.observed:
            if one.listeners is None or one.changed:
                continue  # A broker that restarts has the listeners of its file.
            steps = dynamic_listeners.decide([one.listeners], seen.snapshot)
            opened = dynamic_listeners.added(one.listeners, seen.snapshot) if steps else {}
            busy = [
                _port_in_use(one.broker, name, address)
                for name, address in opened.items()
                if not is_free(int(address.rpartition(":")[2]))
            ]
            waiting += busy
            for step in () if busy else steps:
                await self._in_zookeeper(seen, f"broker {one.broker}", step, {"broker": one.broker})
        return tuple(waiting)

    async def _resize(self, seen: _Seen) -> None:
        """Add and remove brokers."""
        present, decision = self._brokers.ids, seen.decision
        wanted = sorted(seen.cluster.brokers.ids(decision.broker_count, decision.per_pod))
        if present == wanted:
            return
        count, per_pod = _size(seen.cluster, present)
        self._record.set_brokers(max(count, decision.broker_count), max(per_pod, decision.per_pod))
        for broker in wanted:
            if broker not in present:
                await self._remove_listeners(seen.zk, broker)
                self._brokers.add(broker)
                address = f"{LOOPBACK}:{self._ports.broker(broker)}"
                self._act(f"broker {broker}", "AddBroker", f"added at {address}", broker=broker, address=address)
        for broker in reversed(present):
            if broker not in wanted:
                why = "removed, because it holds no replicas any more"
                self._act(f"broker {broker}", "RemoveBroker", why, broker=broker)
                await self._brokers.remove(broker)
        self._record.set_brokers(decision.broker_count, decision.per_pod)
        bootstrap = self._ports.bootstrap(wanted)
        details = {"status": "True", "reason": BROKERS_CHANGED, "bootstrap": bootstrap, "count": len(wanted)}
        noun = "broker" if len(wanted) == 1 else "brokers"
        message = f"it has {len(wanted)} {noun} now: bootstrap {bootstrap}"
        self._report(Event(ProgressKind.STATUS, seen.subject, message, details))
        self._changed()

    async def _carry_out(self, seen: _Seen, step: Step) -> None:
        match step:
            case RestartPod():
                await self._restart(seen, step.ordinal)
            case ReleaseClaims():
                raise AssertionError("local volumes are never lost with a node")
            case MoveReplicas():
                progress = seen.decision.progress
                left = {} if progress is None else {"remaining": progress.remaining, "total": progress.total}
                await self._in_zookeeper(seen, seen.subject, step, {"partitions": len(step.targets), **left})
            case _:
                await self._in_zookeeper(seen, seen.subject, step, {})

    async def _restart(self, seen: _Seen, ordinal: int) -> None:
        """Restart the brokers of a group that need it, all at once, as Kubernetes restarts the containers of a pod."""
        group = [one for one in seen.observed if seen.cluster.brokers.pod_of(one.broker) == ordinal and one.changed]
        for one in group:
            message = f"restarts, because these properties changed: {', '.join(one.changed)}"
            details = {"broker": one.broker, "properties": list(one.changed)}
            self._act(f"broker {one.broker}", "RestartBroker", message, **details)
        self._rolling = True
        async with asyncio.TaskGroup() as restarts:
            for one in group:
                before_start = partial(self._remove_listeners, seen.zk, one.broker)
                restarts.create_task(self._brokers.restart(one.broker, before_start))

    async def _in_zookeeper(self, seen: _Seen, subject: str, step: ZooKeeperStep, details: dict[str, object]) -> None:
        version = seen.snapshot.controller_epoch_version
        assert version is not None, "steps in ZooKeeper are decided only with a controller"
        await carry_out_step(seen.zk, step, epoch_version=version)
        if isinstance(step, RecordBrokers):
            logger.info("%s: %s", subject, step.reason)  # It changes nothing that a user sees.
            return
        prefix = "replicas: " if isinstance(step, MoveReplicas | LiftThrottle) else ""
        self._act(subject, type(step).__name__, f"{prefix}{step.reason}", **details)

    # Reports

    def _act(self, subject: str, action: str, message: str, **details: object) -> None:
        self._report(Event(ProgressKind.ACTION, subject, message, {"action": action, **details}))

    def _tell_waiting(self, seen: _Seen, busy_ports: tuple[Waiting, ...]) -> None:
        for one in self._waits.due((*seen.decision.waiting, *busy_ports), time.monotonic()):
            details = {"status": "False", "reason": one.reason, "waiting": one.what}
            self._report(Event(ProgressKind.STATUS, seen.subject, one.message, details, good=not one.needs_person))

    def _tell_rolled(self, seen: _Seen) -> None:
        """Report the end of a rolling restart."""
        if not self._rolling or seen.decision.outdated or self._brokers.starting:
            return
        self._rolling = False
        details = {"status": "True", "reason": ROLLED}
        message = "every broker runs with the current properties"
        self._report(Event(ProgressKind.STATUS, seen.subject, message, details))

    def _tell_notices(self, cluster: Cluster, decision: ClusterDecision) -> None:
        """Report listeners that are not served, volumes that stay, and topics with more replicas than groups, when they
        change."""
        kept: dict[int, list[int]] = {}
        for broker in self._brokers.ids:
            for volume in self._brokers.kept_volumes(broker):
                kept.setdefault(volume, []).append(broker)
        notices = (
            *self.listeners(cluster).notices,
            *(_kept(volume, brokers) for volume, brokers in kept.items()),
            *crowded_notices(decision.crowded),
        )
        for notice in notices:
            if notice not in self._notices:
                self._report(Event(ProgressKind.NOTICE, f"cluster {cluster.name}", notice, good=False))
        self._notices = notices


def _size(cluster: Cluster, brokers: Iterable[int]) -> tuple[int, int]:
    """Return the number of groups, and of the brokers in each."""
    ids = list(brokers)
    return len({cluster.brokers.pod_of(broker) for broker in ids}), 1 + max(map(cluster.brokers.slot_of, ids))


def _kept(volume: int, brokers: list[int]) -> str:
    return (
        f"Volume {volume} is not in spec.brokers.storage any more, but {listed(brokers)} "
        f"{'keeps' if len(brokers) == 1 else 'keep'} using it, because it holds replicas. Move them to another volume "
        "with kafka-reassign-partitions.sh, or put the volume back."
    )


def _port_in_use(broker: int, listener: str, address: str) -> Waiting:
    port = address.rpartition(":")[2]
    return Waiting(
        what="listeners",
        reason="PortInUse",
        message=f"Broker {broker} cannot open listener {listener}: port {port} of {LOOPBACK} is in use. Stop what "
        f"listens there, or change the port of listener {listener.lower()} in spec.listeners. It is tried again.",
        needs_person=True,
    )
