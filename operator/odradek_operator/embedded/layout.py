"""The ports, folders and properties of the brokers of an embedded cluster. Pure: nothing is written or started here.

`broker_processes` writes the properties to the file of each broker. Brokers get no other configuration, except for
dynamic properties, which are in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek_operator.crds import Cluster, Listener
from odradek_operator.crds.types import SERVICE_ACCOUNT_LOGIN
from odradek_operator.embedded.ports import LOOPBACK, PortUse
from odradek_operator.objects import names, slots
from odradek_operator.objects.cluster_properties import properties_of, sized_defaults
from odradek_operator.objects.listener_security import ANONYMOUS, AUTHORIZER, PLAINTEXT, of_listener, protocol
from odradek_operator.objects.properties_file import render

FIRST_LISTENER: Final = "PLAINTEXT"
"""Name of the listener that the brokers use among themselves. It is fixed, because they must all know it by one name,
also while listeners change."""

AMONG_BROKERS: Final = Listener(name=FIRST_LISTENER.lower(), port=0)
"""The first listener if all of the resource's are secured."""


class MonitoringPorts(NamedTuple):
    """Ports of `/metrics` of the processes other than brokers."""

    operator: int
    zookeeper: int
    exporter: int

    @classmethod
    def from_base(cls, base: int) -> MonitoringPorts:
        """Return three consecutive ports."""
        return cls(base, base + 1, base + 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports of the loopback address. Brokers beyond the rows have the ports that follow the last one.

    The rows are those of slot 0. A broker of slot k has the port of slot 0 of its group + 1000 * k.
    """

    zookeeper: int
    brokers: tuple[int, ...]
    """Port of the first listener, by the ordinal of the group."""
    metrics: tuple[int, ...]
    """Port of `/metrics`, by the ordinal of the group."""
    monitoring: MonitoringPorts | None = None
    """None: operator, ZooKeeper and exporter serve no metrics."""

    @classmethod
    def in_rows(
        cls, count: int, *, zookeeper: int, base: int, metrics_base: int, monitoring: int | None = None
    ) -> Ports:
        """Return consecutive ports from each base."""
        return cls(
            zookeeper=zookeeper,
            brokers=tuple(range(base, base + count)),
            metrics=tuple(range(metrics_base, metrics_base + count)),
            monitoring=None if monitoring is None else MonitoringPorts.from_base(monitoring),
        )

    def broker(self, broker_id: int) -> int:
        """Return the port of a broker's first listener."""
        return _in_row(self.brokers, broker_id)

    def broker_metrics(self, broker_id: int) -> int:
        """Return the port of a broker's `/metrics`."""
        return _in_row(self.metrics, broker_id)

    def uses_of_broker(self, broker_id: int) -> list[PortUse]:
        """Return a broker's ports without those of further listeners, with the options that change them."""
        return [
            PortUse(self.broker(broker_id), f"broker {broker_id}", "--base-port"),
            PortUse(self.broker_metrics(broker_id), f"the metrics of broker {broker_id}", "--metrics-base-port"),
        ]

    def uses(self, brokers: Iterable[int], *, own_zookeeper: bool) -> list[PortUse]:
        """Return all ports of a cluster with these brokers, without those of further listeners."""
        uses = [PortUse(self.zookeeper, "ZooKeeper", "--zookeeper-port")] if own_zookeeper else []
        for broker_id in sorted(brokers):
            uses += self.uses_of_broker(broker_id)
        if self.monitoring is None:
            return uses
        served = self.monitoring._asdict()
        if not own_zookeeper:
            del served["zookeeper"]
        return uses + [PortUse(port, f"the metrics of the {of}", "--monitoring-port") for of, port in served.items()]

    def bootstrap(self, brokers: Iterable[int]) -> str:
        """Return the addresses of these brokers for clients, `host:port,...`."""
        return ",".join(f"{LOOPBACK}:{self.broker(broker_id)}" for broker_id in sorted(brokers))


def _in_row(row: Sequence[int], broker_id: int) -> int:
    slot, index = divmod(broker_id, slots.ID_STRIDE)
    first = row[index] if index < len(row) else row[-1] + index - len(row) + 1
    return slots.port(first, slot)


# Listeners


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedListeners:
    """The listeners of a resource that an embedded cluster serves."""

    first: Listener
    """Its port is `--base-port`. The port in the resource is ignored."""
    further: tuple[Listener, ...] = ()
    """Broker N serves them on their port + N. The id N contains the offset of its slot."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why each other listener is not served, by its name."""

    @property
    def notices(self) -> list[str]:
        """Return a message about each listener that is not served."""
        return list(self.left_out.values())

    def uses_of_broker(self, broker_id: int) -> list[PortUse]:
        """Return a broker's ports of further listeners."""
        return [
            PortUse(
                listener.port + broker_id,
                f"listener {listener.name} of broker {broker_id}",
                f"the port of listener {listener.name} in spec.listeners",
            )
            for listener in self.further
        ]


def served_listeners(cluster: Cluster, taken: Collection[PortUse], *, brokers: Collection[int]) -> ServedListeners:
    """Return the listeners that these brokers serve.

    `taken`: all other ports of the cluster. A listener that needs one of them is not served. The brokers reach each
    other without TLS at the first listener, also if the resource has none without TLS and authentication.
    """
    plain = [listener for listener in cluster.listeners if listener.plain] or [AMONG_BROKERS]
    users = {use.port: use.user for use in taken}
    further: list[Listener] = []
    left_out: dict[str, str] = {}
    for listener in cluster.listeners:
        if listener is plain[0]:
            continue
        if why := _why_left_out(listener, users, sorted(brokers)):
            left_out[listener.name] = f"Listener {listener.name} of Cluster {cluster.name} is not served: {why}"
            continue
        further.append(listener)
        users |= {listener.port + broker: f"listener {listener.name} of broker {broker}" for broker in brokers}
    return ServedListeners(first=plain[0], further=tuple(further), left_out=left_out)


def _why_left_out(listener: Listener, users: Mapping[int, str], brokers: Sequence[int]) -> str:
    if listener.login == SERVICE_ACCOUNT_LOGIN:
        return "there are no ServiceAccounts outside of Kubernetes."
    if listener.name.upper() == FIRST_LISTENER:
        return f"the brokers use the name {FIRST_LISTENER} among themselves. Rename the listener."
    last = listener.port + brokers[-1]
    if last > slots.MAX_PORT:
        return f"broker {brokers[-1]} would need port {last}, which does not exist. Change its port in spec.listeners."
    taken = next((port for broker in brokers if (port := listener.port + broker) in users), None)
    if taken is None:
        return ""
    needed = f"port {last}" if len(brokers) == 1 else f"the ports {listener.port} to {last}, one for each broker"
    return f"it needs {needed}, but {taken} is the port of {users[taken]}. Change its port in spec.listeners."


# Properties


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProperties:
    """The properties in the file of one broker, by how a change takes effect."""

    static: Mapping[str, str]
    """A change takes a restart."""
    sized: Mapping[str, str]
    """Defaults that depend on the number of groups. New values take effect at the next restart, but cause none."""
    listeners: Mapping[str, str]
    """See `lifecycle/dynamic_listeners`."""

    @property
    def file(self) -> dict[str, str]:
        """Return all properties."""
        return {**self.sized, **self.static, **self.listeners}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the processes of a cluster are."""

    data: PurePath
    """Absolute path of the data folder."""
    ports: Ports
    zookeeper: str
    """Connect string."""


def small_defaults() -> dict[str, str]:
    """Return defaults for one machine, where Kafka's are for more or larger ones. The resource overrides them."""
    return {
        # 50 partitions in a few processes of one machine would make starts and failovers slower.
        "offsets.topic.num.partitions": "12",
        # On one machine, the members of a group start at about the same time.
        "group.initial.rebalance.delay.ms": "0",
        # On one machine, a broker that is silent has failed: there is no network that could delay it.
        "zookeeper.session.timeout.ms": "6000",
        # The last broker that stops has no other to move leaderships to, and would try for a long time.
        "controlled.shutdown.retry.backoff.ms": "500",
    }


def secrets_directory(data: PurePath) -> PurePath:
    """Return the folder of Secrets, such as certificates and the logins of users."""
    return data / "secrets"


def broker_directory(data: PurePath, broker_id: int) -> PurePath:
    """Return the folder of one broker: its properties, the log of its process, its volumes."""
    return data / f"broker-{broker_id}"


def volume_directory(data: PurePath, broker_id: int, volume_id: int) -> PurePath:
    """Return the log directory of a broker on one volume."""
    return broker_directory(data, broker_id) / f"volume-{volume_id}"


def volume_ids(cluster: Cluster) -> list[int]:
    """Return the ids of the volumes of each broker; without volumes in the resource, there is one."""
    return [volume.id for volume in cluster.brokers.volumes] or [0]


def broker_properties(
    cluster: Cluster, broker_id: int, site: Site, *, further: Sequence[Listener] = (), kept_volumes: Sequence[int] = ()
) -> BrokerProperties:
    """Return the properties of one broker, without dynamic ones.

    `further`: served listeners other than the first. `kept_volumes`: ids of volumes that are no longer in the resource,
    but hold replicas of the broker.
    """
    racks, ordinal = cluster.brokers.rack_names, cluster.brokers.pod_of(broker_id)
    given, _ = properties_of(cluster)
    volumes = [*volume_ids(cluster), *kept_volumes]
    return BrokerProperties(
        static={
            **small_defaults(),
            **given,
            **({"broker.rack": racks[ordinal % len(racks)]} if racks else {}),
            "broker.id": str(broker_id),
            # A group has the place of a pod, so replicas of a partition are in different groups.
            "broker.machine": f"machine-{ordinal}",
            "log.dirs": ",".join(str(volume_directory(site.data, broker_id, volume)) for volume in volumes),
            **security_properties(cluster, broker_id, site, further),
            "zookeeper.connect": site.zookeeper,
            "metrics.host": LOOPBACK,
            "metrics.port": str(site.ports.broker_metrics(broker_id)),
        },
        sized={
            key: value
            for key, value in sized_defaults(cluster.brokers.replicas).items()
            if key not in cluster.brokers.config
        },
        listeners=_listeners(broker_id, site.ports, further),
    )


def security_properties(cluster: Cluster, broker_id: int, site: Site, further: Sequence[Listener]) -> dict[str, str]:
    """Return the properties of secured listeners; none without. They cannot change without a restart.

    Brokers have no login among themselves, so who reaches the first listener, which has the loopback address, may do
    everything.
    """
    secured = [listener for listener in further if not listener.plain]
    if not secured:
        return {}
    folder = secrets_directory(site.data) / names.kafka_certs(cluster.name)
    users = [given] if (given := cluster.brokers.config.get("super.users")) else []
    found = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": ";".join([*users, ANONYMOUS]),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / names.broker_keystore(broker_id)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / names.CLUSTER_CA_FILE),
    }
    for listener in secured:
        found |= of_listener(cluster, listener, str(folder))
    return found


def addresses(ports: Ports, served: ServedListeners, brokers: Iterable[int]) -> dict[str, str]:
    """Return the addresses of the brokers for clients of each listener, `host:port,...`, by its name."""
    ids = sorted(brokers)
    found = {
        listener.name: ",".join(f"{LOOPBACK}:{listener.port + broker}" for broker in ids) for listener in served.further
    }
    return {served.first.name: ports.bootstrap(ids), **found}


def _listeners(broker_id: int, ports: Ports, further: Sequence[Listener]) -> dict[str, str]:
    by_name = {FIRST_LISTENER: ports.broker(broker_id)}
    by_name |= {listener.name.upper(): listener.port + broker_id for listener in further}
    joined = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in by_name.items())
    found = {"listeners": joined, "advertised.listeners": joined}
    if further:
        protocols = {FIRST_LISTENER: PLAINTEXT, **{one.name.upper(): protocol(one) for one in further}}
        found["listener.security.protocol.map"] = ",".join(f"{name}:{used}" for name, used in protocols.items())
    return found


def render_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a properties file."""
    return render(
        properties,
        header="Written by odradek up from the Cluster resource, at each start of the broker: change the resource.",
    )
