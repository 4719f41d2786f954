"""Where everything of an embedded cluster is, and the properties of each broker. Values only, nothing is done here.

Enters: a Cluster resource, a data folder, ports. Leaves: paths and `server.properties`. The cluster writes the files;
brokers get nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from odradek_operator.crds import Cluster, Listener
from odradek_operator.embedded.ports import LOOPBACK, PortUse
from odradek_operator.errors import EmbeddedError
from odradek_operator.objects.properties_file import render


class MonitoringPorts(NamedTuple):
    """Where `/metrics` is served of all that is no broker."""

    operator: int
    zookeeper: int
    exporter: int

    @classmethod
    def from_base(cls, base: int) -> MonitoringPorts:
        """Three consecutive ones."""
        return cls(base, base + 1, base + 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports of the loopback address; those of the brokers by broker id."""

    zookeeper: int
    brokers: tuple[int, ...]
    metrics: tuple[int, ...]
    monitoring: MonitoringPorts | None = None
    """None: the series of operator, ZooKeeper and exporter are not served."""

    @classmethod
    def in_rows(
        cls, count: int, *, zookeeper: int, base: int, metrics_base: int, monitoring: int | None = None
    ) -> Ports:
        """Consecutive ones from each base."""
        return cls(
            zookeeper=zookeeper,
            brokers=tuple(range(base, base + count)),
            metrics=tuple(range(metrics_base, metrics_base + count)),
            monitoring=None if monitoring is None else MonitoringPorts.from_base(monitoring),
        )

    def uses(self, *, own_zookeeper: bool) -> list[PortUse]:
        """All of them, with the options that change them."""
        uses = [PortUse(self.zookeeper, "ZooKeeper", "--zookeeper-port")] if own_zookeeper else []
        uses += [PortUse(port, f"broker {number}", "--base-port") for number, port in enumerate(self.brokers)]
        uses += [
            PortUse(port, f"the metrics of broker {number}", "--metrics-base-port")
            for number, port in enumerate(self.metrics)
        ]
        if self.monitoring is None:
            return uses
        served = self.monitoring._asdict()
        if not own_zookeeper:
            del served["zookeeper"]
        return uses + [PortUse(port, f"the metrics of the {of}", "--monitoring-port") for of, port in served.items()]

    @property
    def bootstrap(self) -> str:
        """What clients are given."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self.brokers)


def served_listener(cluster: Cluster) -> Listener:
    """The one listener that an embedded cluster has: the first without certificates and passwords."""
    plain = [listener for listener in cluster.listeners if listener.plain]
    if not plain:
        raise EmbeddedError(
            f"Cluster {cluster.name} has no listener without tls and authentication, and an embedded cluster "
            "serves no other yet: add {name: plain, port: 9092, type: internal} to spec.listeners."
        )
    return plain[0]


def left_out(cluster: Cluster) -> list[str]:
    """A sentence for each listener of the resource that an embedded cluster does not have."""
    served = served_listener(cluster)
    return [
        f"Listener {listener.name} of Cluster {cluster.name} is left out: an embedded cluster has one, {served.name}."
        for listener in cluster.listeners
        if listener is not served
    ]


def small_defaults(brokers: int) -> dict[str, str]:
    """Where Kafka's defaults are meant for more or larger machines. What the resource says comes before these."""
    factor = str(min(3, brokers))
    return {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        # 50 partitions on three processes of one machine would only make starting and failing over slower.
        "offsets.topic.num.partitions": "12",
        # Nobody waits three seconds for more members of a group on a laptop.
        "group.initial.rebalance.delay.ms": "0",
        # On one machine silence means death sooner than over a network.
        "zookeeper.session.timeout.ms": "6000",
        # The last broker to stop has nobody to hand over to, and would try for a long time.
        "controlled.shutdown.retry.backoff.ms": "500",
    }


def broker_directory(data: PurePath, broker_id: int) -> PurePath:
    """Everything of one broker: properties, log of the process, volumes."""
    return data / f"broker-{broker_id}"


def log_directories(cluster: Cluster, data: PurePath, broker_id: int) -> list[str]:
    """One for each volume."""
    ids = [volume.id for volume in cluster.brokers.volumes] or [0]
    return [str(broker_directory(data, broker_id) / f"volume-{number}") for number in ids]


def broker_properties(
    cluster: Cluster, broker_id: int, *, data: PurePath, ports: Ports, zookeeper: str
) -> dict[str, str]:
    """The properties of one broker. `data` must be absolute, since the broker may run elsewhere."""
    listener = f"PLAINTEXT://{LOOPBACK}:{ports.brokers[broker_id]}"
    racks = cluster.brokers.rack_names
    return {
        **small_defaults(cluster.brokers.replicas),
        **cluster.brokers.config,
        **({"broker.rack": racks[broker_id % len(racks)]} if racks else {}),
        "broker.id": str(broker_id),
        "listeners": listener,
        "advertised.listeners": listener,
        "log.dirs": ",".join(log_directories(cluster, data, broker_id)),
        "zookeeper.connect": zookeeper,
        "metrics.host": LOOPBACK,
        "metrics.port": str(ports.metrics[broker_id]),
    }


def render_properties(properties: Mapping[str, str]) -> str:
    """The text of a properties file."""
    return render(
        properties, header="Written by odradek up at each start from the Cluster resource: change that, not this."
    )
