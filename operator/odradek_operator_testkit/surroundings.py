"""A simulation of the environment of an operator, in virtual time, with in-memory API server and ZooKeeper.

`World` simulates the controllers of Kubernetes, the kubelets, and the brokers with their controller, in steps of half a
second. An `Operator` is one process of the operator without sockets: the manager with its loops, which receives changes
as from kopf. Several operators can run one after the other in one world.
"""

from __future__ import annotations

import asyncio
import base64
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from prometheus_client import CollectorRegistry

from odradek.base.types import Endpoint, TopicPartition
from odradek.security.tls.tls_settings import TlsSettings
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk import layout
from odradek.zk.layout import (
    BrokerRegistration,
    ClusterId,
    ControllerRegistration,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from odradek.zk.port import Result, ZkClient, ZkError, ZkSettings
from odradek_operator.crds.types import TLS_LOGIN, Cluster
from odradek_operator.kube.api.object_cache import ObjectCache
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.kube.cluster.cluster_loop import Shared
from odradek_operator.kube.cluster.exporter_reports import Reports
from odradek_operator.kube.cluster.kubernetes_events import Events
from odradek_operator.kube.cluster.tls_reports import TlsReport, UsedFiles
from odradek_operator.kube.manager import Manager
from odradek_operator.kube.operator_metrics import Reconciliations
from odradek_operator.kube.operator_settings import OperatorSettings
from odradek_operator.kube.resource_metrics import MirrorMetrics, PipelineMetrics
from odradek_operator.kube.scopes import Leases
from odradek_operator.lifecycle.observed_cluster import Quorum
from odradek_operator.mirrors.mirror_pods import MirrorPod
from odradek_operator.mirrors.mirror_report import MirrorReport
from odradek_operator.objects import names
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.slots import ID_STRIDE, slot_of
from odradek_operator.pipelines.driver_pods import DriverPod
from odradek_operator.pipelines.job_report import JobReport
from odradek_operator.security.material import Files
from odradek_operator.security.stored_authority import fingerprint
from odradek_operator_testkit.api import Asked, KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.deployments import run_deployments
from odradek_operator_testkit.store import Change, Key, key_of

NAMESPACE = "shop"
STEP_SECONDS = 0.5
PATIENCE_SECONDS = 1_800.0
"""Timeout of `until`, in seconds of virtual time."""
IDLE_SECONDS = 30.0
NODES = 6
"""Number of nodes, at least the number of pods in any of these tests."""


async def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition is true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"never: {what}"
        await asyncio.sleep(STEP_SECONDS)


def cluster_body(name: str = "demo", *, namespace: str = NAMESPACE, **spec: Any) -> Object:
    """Return a Cluster that uses an existing ensemble, so that ZooKeeper is available from the start."""
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "zookeeper": {"connect": "zk:2181"},
            "monitoring": {"exporter": {"enabled": False}},
            "brokers": {"storage": {"volumes": [{"id": 0, "size": "1Gi", "storageClass": "disks"}]}},
            **spec,
        },
    }


def topic_body(name: str, cluster: str = "demo", **spec: Any) -> Object:
    """Return a Topic."""
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "Topic",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"cluster": cluster, **spec},
    }


def condition(body: Object | None) -> tuple[str, str]:
    """Return status and reason of the `Ready` condition; two empty strings if there is none."""
    conditions = ((body or {}).get("status") or {}).get("conditions") or []
    return next(((one["status"], one.get("reason", "")) for one in conditions if one["type"] == "Ready"), ("", ""))


def is_ready(body: Object | None) -> bool:
    """Whether the condition `Ready` of a resource is true for its current specification."""
    current = (
        body is not None and (body.get("status") or {}).get("observedGeneration") == body["metadata"]["generation"]
    )
    return current and condition(body)[0] == "True"


class World:
    """The simulation of everything except the operator."""

    def __init__(self) -> None:
        """Create a world that only has a controller with epoch 1."""
        self.api = KubernetesApi()
        self._began = datetime.now(UTC)
        self._first_second: float | None = None
        self.tree = MemoryTree()
        self.deleted_pods: list[str] = []
        """Names of pods in the order of the requests to delete them."""
        self.makes_pods = True
        """Whether the StatefulSet controller creates missing pods."""
        self.mounts_follow = True
        """Whether brokers read changed Secrets at once, as if the kubelets were without delay."""
        self.job_reports: dict[str, JobReport] = {}
        """What the drivers of Pipelines report, by pod."""
        self.mirror_reports: dict[str, MirrorReport | None] = {}
        """What the pods of Mirrors report, by pod. A pod that is not here copies nothing."""
        self.mounted: dict[int, Files] = {}
        """The files with certificates that each broker has read, by id."""
        for number in range(NODES):
            self.api.put(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": f"node-{number}"},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                }
            )
        self._zk = MemoryZk(self.tree)
        self._brokers: dict[int, MemoryZk] = {}

    # Certificates

    def read_secrets(self, *brokers: int) -> None:
        """Let brokers read the present Secret with their certificates."""
        data = self.get(Kind.SECRET, names.kafka_certs("demo"))["data"]
        files = {key: base64.b64decode(value) for key, value in data.items()}
        self.mounted |= dict.fromkeys(brokers, files)

    async def ask_brokers(self, cluster: Cluster, brokers: Collection[int]) -> dict[int, TlsReport]:
        """Return what the brokers use, as `ask_brokers` of `tls_reports` does."""
        if self.mounts_follow:
            self.read_secrets(*brokers)
        found = {}
        for broker in set(brokers) & self.mounted.keys():
            files = self.mounted[broker]
            chain = _fingerprints(files[names.broker_keystore(broker)])
            link = UsedFiles(chain=chain, trusted=frozenset(_fingerprints(files[names.CLUSTER_CA_FILE])))
            users = UsedFiles(chain=chain, trusted=frozenset(_fingerprints(files[names.CLIENTS_CA_FILE])))
            listeners = {one.name: users for one in cluster.listeners if one.login == TLS_LOGIN}
            found[broker] = TlsReport(listeners={names.SECURE_REPLICATION_LISTENER: link, **listeners}, client=link)
        return found

    async def ask_members(self, hosts: Mapping[int, str], port: int, tls: TlsSettings | None) -> Quorum:
        """Return the roles of the members whose pods are ready and listen on the port: the first one leads."""
        ready = []
        for member, host in hosts.items():
            pod = self.find(Kind.POD, host.partition(".")[0])
            if pod is not None and condition(pod)[0] == "True" and port in _ports_of(pod):
                ready.append(member)
        modes = {member: "follower" if number else "leader" for number, member in enumerate(ready)}
        return Quorum(modes=modes, followers=len(ready) - 1 if ready else None)

    # Pipelines and Mirrors

    def now(self) -> datetime:
        """Return the present time: that of the start, and the virtual time since then."""
        seconds = asyncio.get_running_loop().time()
        if self._first_second is None:
            self._first_second = seconds
        return self._began + timedelta(seconds=seconds - self._first_second)

    async def ask_driver(self, driver: DriverPod) -> JobReport | None:
        """Return the report of a driver, as `ask_driver` of `job_reports` does."""
        return self.job_reports.get(driver.name)

    async def ask_mirror(self, pod: MirrorPod) -> MirrorReport | None:
        """Return the report of a pod, as `ask_mirror` of `mirror_reports` does."""
        return self.mirror_reports.get(pod.name, MirrorReport())

    # Actions of users

    def find(self, kind: Kind, name: str) -> Object | None:
        """Return an object in the namespace of these tests, or a cluster-scoped one; None if it does not exist."""
        namespace = NAMESPACE if kind.namespaced else None
        return self.api.store.find(_key(Reference(kind=kind, namespace=namespace, name=name)))

    def get(self, kind: Kind, name: str) -> Object:
        """Return an object. Fails if it does not exist."""
        found = self.find(kind, name)
        assert found is not None, f"{kind.word} {name}"
        return found

    def change(self, kind: Kind, name: str, patch: Object) -> None:
        """Apply a merge patch, as a user does."""
        self.api.store.merge(_key(Reference(kind=kind, namespace=NAMESPACE, name=name)), patch)

    def delete(self, kind: Kind, name: str) -> None:
        """Delete an object, as a user does."""
        self.api.store.delete(_key(Reference(kind=kind, namespace=NAMESPACE, name=name)), {})

    def topics(self) -> set[str]:
        """Return the names of the topics in ZooKeeper."""
        return set(self.tree.children(layout.TOPICS)) if layout.TOPICS in self.tree.nodes else set()

    def replicas(self, topic: str) -> set[int]:
        """Return the brokers that have replicas of a topic."""
        assignment = TopicAssignment.decode(topic, self.tree.node(layout.topic_path(topic)).data)
        return {broker for part in assignment.partitions.values() for broker in part.replicas}

    async def set_cluster_id(self, cluster_id: str) -> None:
        """Change the cluster id, as if another ensemble answered."""
        await self._zk.set(layout.CLUSTER_ID, ClusterId(cluster_id=cluster_id).encode())

    async def start_foreign_broker(self, broker: int) -> MemoryZk:
        """Register a broker of another cluster. It disappears when the returned session is closed."""
        session = MemoryZk(self.tree)
        registration = BrokerRegistration(broker_id=broker, endpoints=(Endpoint("PLAIN", f"kafka-{broker}", 9092),))
        await session.create(registration.path, registration.encode(), ephemeral=True)
        return session

    async def create_foreign_topic(self, topic: str, *replicas: int) -> None:
        """Create a topic with one partition, on brokers that may be down."""
        assignment = TopicAssignment(topic=topic, partitions={0: ReplicaAssignment(replicas=replicas)})
        await self._zk.create(assignment.path, assignment.encode())

    def ready(self, kind: Kind, *names_of: str) -> bool:
        """Whether all of these resources are ready."""
        return all(is_ready(self.find(kind, name)) for name in names_of)

    # Actions of other components

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Run the simulation inside the block."""
        for path in layout.PERSISTENT_PATHS:
            await self._zk.ensure_path(path)
        await self._zk.create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(1))
        await self._zk.create(layout.CLUSTER_ID, ClusterId(cluster_id="the-id").encode(), make_parents=True)
        task = asyncio.create_task(self._live())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for session in [*self._brokers.values(), self._zk]:
                await session.close()

    async def _live(self) -> None:
        before = (0, 0)
        while True:
            now = (self.api.store.version, self.tree.last_zxid)
            if now != before:
                self._stateful_sets()
                run_deployments(self.api, NAMESPACE)
                self._kubelets()
                await self._register()
                await self._control()
            before = now
            await asyncio.sleep(STEP_SECONDS)

    def _all(self, kind: Kind) -> list[Object]:
        return self.api.store.all(_key(Reference(kind=kind, namespace=NAMESPACE, name="")).resource, None)

    def _stateful_sets(self) -> None:
        """Create missing pods and claims, adopt those without an owner, and set the observed generation."""
        for body in self._all(Kind.STATEFUL_SET):
            name, spec = body["metadata"]["name"], body["spec"]
            start = spec.get("ordinals", {}).get("start", 0)
            for number in range(start, start + spec["replicas"]):
                for template in spec["volumeClaimTemplates"]:
                    self._claim(body, template, f"{template['metadata']['name']}-{name}-{number}")
                present = self.find(Kind.POD, f"{name}-{number}")
                if present is None:
                    if self.makes_pods:
                        self.api.put(_pod(body, number))
                elif not present["metadata"].get("ownerReferences"):
                    self.change(Kind.POD, f"{name}-{number}", {"metadata": {"ownerReferences": [_owner(body)]}})
            for pod in self._all(Kind.POD):
                is_ours = pod["metadata"]["name"].startswith(f"{name}-")
                if is_ours and names.ordinal(pod["metadata"]["name"]) >= start + spec["replicas"]:
                    self.api.store.delete(key_of(pod), {})
            seen = {"observedGeneration": body["metadata"]["generation"]}
            self.api.store.merge(key_of(body), {"status": seen}, status_only=True)

    def _claim(self, owner: Object, template: Object, name: str) -> None:
        if self.find(Kind.CLAIM, name) is None:
            metadata = {"name": name, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
            body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
            self.api.put({**body, "spec": copy.deepcopy(template["spec"]), "status": {"phase": "Bound"}})

    def _kubelets(self) -> None:
        """Start pods, and end those that are being deleted."""
        for body in self._all(Kind.POD):
            if "deletionTimestamp" in body["metadata"]:
                self.deleted_pods.append(body["metadata"]["name"])
                self.api.store.delete(key_of(body), {"gracePeriodSeconds": 0})
            elif "status" not in body:
                conditions = [{"type": "Ready", "status": "True"}]
                status = {"phase": "Running", "conditions": conditions}
                self.api.store.merge(key_of(body), {"status": status}, status_only=True)

    async def _register(self) -> None:
        """Register the brokers whose pods run. The first of them is the controller."""
        running = {
            names.ordinal(body["metadata"]["name"]) + ID_STRIDE * slot: body["spec"].get("nodeName")
            for body in self._all(Kind.POD)
            if body["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.Component.KAFKA.value and "status" in body
            for container in body["spec"]["containers"]
            if (slot := slot_of(container["name"])) is not None
        }
        for number in sorted(running.keys() - self._brokers.keys()):
            session = self._brokers[number] = MemoryZk(self.tree)
            endpoint = Endpoint("PLAIN", f"demo-kafka-{number}", 9092)
            registration = BrokerRegistration(broker_id=number, endpoints=(endpoint,), machine=running[number])
            await session.create(registration.path, registration.encode(), ephemeral=True)
        for number in self._brokers.keys() - running.keys():
            await self._brokers.pop(number).close()
        if self._brokers and await self._zk.exists(layout.CONTROLLER) is None:
            first = min(self._brokers)
            data = ControllerRegistration(broker_id=first).encode()
            await self._brokers[first].create(layout.CONTROLLER, data, ephemeral=True)

    async def _control(self) -> None:
        """Move replicas, elect leaders, and delete topics that are marked for deletion."""
        await self._reassign()
        for name in await self._zk.children(layout.TOPICS):
            topic = TopicAssignment.decode(name, (await self._zk.get(layout.topic_path(name)))[0])
            for number, assignment in topic.partitions.items():
                await self._elect(TopicPartition(name, number), assignment)
        for name in await self._zk.children(layout.DELETE_TOPICS):
            await self._delete_topic(name)

    async def _reassign(self) -> None:
        requested = await self._zk.get_or_none(layout.REASSIGN_PARTITIONS)
        if requested is None:
            return
        for partition, replicas in layout.decode_reassignment(requested[0]).items():
            path = layout.topic_path(partition.topic)
            assignment = TopicAssignment.decode(partition.topic, (await self._zk.get(path))[0])
            moved = {**assignment.partitions, partition.partition: ReplicaAssignment(replicas=replicas)}
            await self._zk.set(path, replace(assignment, partitions=moved).encode())
        await self._zk.delete(layout.REASSIGN_PARTITIONS)

    async def _elect(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        path = layout.partition_state_path(partition)
        alive = tuple(broker for broker in assignment.replicas if broker in self._brokers)
        if not alive:
            return
        state = PartitionState(leader=alive[0], leader_epoch=1, isr=alive, controller_epoch=1).encode()
        present = await self._zk.get_or_none(path)
        if present is None:
            await self._zk.create(path, state, make_parents=True)
        elif present[0] != state:
            await self._zk.set(path, state)

    async def _delete_topic(self, name: str) -> None:
        for path in sorted(self.tree.nodes, reverse=True):
            if path.startswith(f"{layout.topic_path(name)}/") or path == layout.topic_path(name):
                await self._zk.delete(path)
        if await self._zk.exists(layout.config_path("topics", name)):
            await self._zk.delete(layout.config_path("topics", name))
        await self._zk.delete(layout.delete_topic_path(name))


class Killed(BaseException):
    """The simulated operator process was killed."""


class CountedZk(MemoryZk):
    """A session that calls a function before each transaction."""

    def __init__(self, tree: MemoryTree, before: Callable[[], None]) -> None:
        super().__init__(tree)
        self._before = before

    async def multi(self, operations: Any) -> list[Result]:
        self._before()
        return await super().multi(operations)


class Operator:
    """A simulated process of the operator."""

    def __init__(
        self, world: World, *, namespaces: tuple[str, ...] = (), lives: int | None = None, leases: str = ""
    ) -> None:
        """Create an operator. It is killed before the write with number `lives`, counted from 0; None: never.

        Writes to Kubernetes and ZooKeeper count. With `leases`, the operator acquires Leases under this name.
        """
        self.world = world
        self.zookeeper_trouble: ZkError | None = None
        """Error with which the opening of sessions, and all operations of open sessions, fail."""
        self.killed = asyncio.Event()
        self.deaf = False
        """Whether it receives no watch events."""
        self.deaf_to: frozenset[str] = frozenset()
        """Kinds for which it receives no watch events."""
        self.lag_seconds = 0.0
        """Delay of watch events."""
        self.registry = CollectorRegistry()
        self._sessions: list[CountedZk] = []
        self.zookeeper_settings: list[ZkSettings] = []
        """The settings of each session so far."""
        self._lives = lives
        self._written = 0
        self.settings = OperatorSettings(
            images=ImageSettings(),
            namespaces=namespaces,
            idle_seconds=IDLE_SECONDS,
            identity=leases or "odradek-operator",
        )
        self.client = MemoryClient(world.api)
        shared = Shared(
            client=self.client,
            cache=ObjectCache(self.client),
            events=Events(self.client, instance="operator-0"),
            settings=self.settings,
            reconciliations=Reconciliations(self.registry, namespaces),
            pipelines=PipelineMetrics(self.registry),
            mirrors=MirrorMetrics(self.registry),
            reports=Reports(),
            ask_brokers=world.ask_brokers,
            ask_members=world.ask_members,
            ask_driver=world.ask_driver,
            ask_mirror=world.ask_mirror,
            now=world.now,
            opened=self._open,
        )
        self.lease_client = MemoryClient(world.api)
        self.leases = Leases(self.lease_client, self.settings) if leases else None
        self.manager = Manager(shared, self.leases)

    async def _open(self, settings: ZkSettings) -> ZkClient:
        assert settings.connect == "zk:2181" or settings.connect.startswith("demo-zookeeper-")
        if self.zookeeper_trouble is not None:
            raise self.zookeeper_trouble
        self.zookeeper_settings.append(settings)
        self._sessions.append(CountedZk(self.world.tree, self._before))
        return self._sessions[-1]

    async def lose_zookeeper(self, trouble: ZkError) -> None:
        """End all sessions. No new one is opened until `zookeeper_trouble` is None."""
        self.zookeeper_trouble = trouble
        for session in self._sessions:
            await session.close()

    def _before(self) -> None:
        if self._lives is not None and self._written >= self._lives:
            self.killed.set()
            raise asyncio.CancelledError
        self._written += 1

    def _hear(self) -> None:
        """Handle a change like kopf's handlers, in a later iteration of the event loop."""
        change = self.world.api.store.changes[-1]
        if not self.deaf and change.key.resource.kind not in self.deaf_to:
            asyncio.get_running_loop().call_later(self.lag_seconds, self._told, change)

    def _told(self, change: Change) -> None:
        body = change.after or change.before
        assert body is not None
        deleted = change.after is None
        self.manager.watch_event(body, deleted=deleted, listed=False)
        match change.key.resource.kind:
            case "Cluster":
                self.manager.cluster_changed(body, deleted=deleted)
            case "Topic":
                self.manager.topic_changed(body, deleted=deleted)
            case "User":
                self.manager.user_changed(body, deleted=deleted)
            case "Pipeline":
                self.manager.pipeline_changed(body, deleted=deleted)
            case "Mirror":
                self.manager.mirror_changed(body, deleted=deleted)
            case _ if names.CLUSTER_LABEL in (body["metadata"].get("labels") or {}):
                self.manager.object_changed(body, deleted=deleted)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Operator]:
        """Run the operator inside the block, or until it is killed."""
        store, writes = self.world.api.store, self.world.api.before_write

        def before(asked: Asked) -> None:
            if not asked.path.endswith("/status") or "/pods/" not in asked.path:
                self._before()

        self.world.api.before_write = before
        store.listeners.append(self._hear)
        tasks = [asyncio.create_task(self.manager.run())]
        if self.leases is not None:
            tasks.append(asyncio.create_task(self.leases.run(self.manager)))
        try:
            yield self
        finally:
            store.listeners.remove(self._hear)
            self.world.api.before_write = writes
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def scenario(
    steps: Callable[[World, Operator], Awaitable[None]], **options: Any
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Run `steps` in a world with a running operator."""

    async def run() -> None:
        world = World()
        async with world.living(), Operator(world, **options).working() as operator:
            await steps(world, operator)

    return run


def _key(which: Reference) -> Key:
    return key_of(
        {
            "apiVersion": which.kind.api_version,
            "kind": which.kind.word,
            "metadata": {"name": which.name, "namespace": which.namespace},
        }
    )


def _owner(body: Object) -> Object:
    metadata = body["metadata"]
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _pod(owner: Object, number: int) -> Object:
    name, template = owner["metadata"]["name"], copy.deepcopy(owner["spec"]["template"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template["metadata"],
            "name": f"{name}-{number}",
            "namespace": NAMESPACE,
            "ownerReferences": [_owner(owner)],
        },
        "spec": {**template["spec"], "nodeName": f"node-{number % NODES}"},
    }


def _ports_of(pod: Object) -> set[int]:
    return {port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}


def _fingerprints(pem: bytes) -> tuple[str, ...]:
    return tuple(map(fingerprint, x509.load_pem_x509_certificates(pem)))
