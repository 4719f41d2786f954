"""The properties of a cluster's brokers and its ensemble, in files and in ZooKeeper. Pure.

Dynamic properties are never written to the file: there they would take effect again after their removal from ZooKeeper.
Properties that differ between brokers (id, rack, listeners) are added in the pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from odradek.base.config import BROKER_SETTINGS, Effect, broker_effect
from odradek.base.setting_definitions import Update
from odradek_operator.crds.types import Cluster
from odradek_operator.objects import ensemble_security, listener_security, names, storage
from odradek_operator.objects.parts import Object

HASH_LETTERS: Final = 16
_MAX_FACTOR: Final = 3

_DEFAULTS: Final[Mapping[str, str]] = {
    # If a broker crashes, its supervisor ends the session at once. The timeout only matters if a node is lost. Kafka's
    # default also tolerates slow networks.
    "zookeeper.session.timeout.ms": "18000",
    # The broker of a deleted pod moves its leaderships away within the grace period.
    "controlled.shutdown.enable": "true",
}
"""Properties of brokers that the resource may override."""

_ZOOKEEPER_DEFAULTS: Final[Mapping[str, str]] = {
    "tickTime": "2000",
    "initLimit": "10",
    "syncLimit": "5",
    "maxSessionTimeout": "60000",
    "maxClientCnxns": "0",
    "autopurge.purgeInterval": "1",
    "autopurge.snapRetainCount": "3",
    # Listen on all addresses: the DNS name of a member may not exist yet when it starts.
    "quorumListenOnAllIPs": "true",
    # With this setting, an ensemble of one has the same configuration and metrics as a larger one.
    "standaloneEnabled": "false",
}
"""Properties of the ensemble that the resource may override."""

_ZOOKEEPER_FIXED: Final[Mapping[str, str]] = {
    "dataDir": storage.ZOOKEEPER_DATA,
    "clientPort": str(names.ZOOKEEPER_CLIENT_PORT),
    "admin.enableServer": "false",
    # The pod reads its metrics with `mntr`. The operator queries `srvr` before it restarts members.
    "4lw.commands.whitelist": "mntr,ruok,srvr",
}
"""Properties that only the operator sets. A resource with other values is rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """The properties of a cluster's brokers, by where they are stored and how a change takes effect."""

    static: Mapping[str, str]
    """In the file. A change restarts every broker."""
    sized: Mapping[str, str]
    """In the file. Defaults that depend on the number of brokers. A change does not restart brokers, because it only
    affects topics that are created automatically. It takes effect at the next restart of each broker."""
    dynamic: Mapping[str, str]
    """In ZooKeeper, as defaults of all brokers. Changes take effect at once."""

    @property
    def file(self) -> dict[str, str]:
        """Return the content of the brokers' file."""
        return {**self.sized, **self.static}


def sized_defaults(brokers: int) -> dict[str, str]:
    """Return the defaults that depend on the number of brokers: the replicas of topics that brokers create.

    A transaction needs `__transaction_state` with all but one of its replicas, so that one broker may be down.
    """
    factor = min(_MAX_FACTOR, brokers)
    return {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(max(1, factor - 1)),
    }


def split(cluster: Cluster) -> Properties:
    """Return the brokers' properties.

    The resource overrides the defaults. Properties that the operator sets override both.
    """
    given, dynamic = properties_of(cluster)
    sized = sized_defaults(cluster.brokers.replicas)
    return Properties(
        static={
            **_DEFAULTS,
            **listener_security.properties(cluster),
            **given,
            **listener_security.fixed(cluster),
            **ensemble_security.broker_properties(cluster),
            "zookeeper.connect": zookeeper_connect(cluster),
            "log.dirs": ",".join(storage.log_dirs(cluster.brokers)),
            "metrics.port": str(names.METRICS_PORT),
        },
        sized={key: value for key, value in sized.items() if key not in given and key not in dynamic},
        dynamic={**_lag_metrics(cluster), **dynamic},
    )


def _lag_metrics(cluster: Cluster) -> dict[str, str]:
    """Return the property with which brokers provide the lag of groups. The exporter has series of the same names."""
    return {} if cluster.monitoring.exporter else {"group.lag.metrics.enable": "true"}


def properties_of(cluster: Cluster) -> tuple[dict[str, str], dict[str, str]]:
    """Return two groups of properties in the resource: those that need a restart, and the dynamic ones.

    Unknown properties and properties without effect are omitted, because they must not restart brokers.
    """
    config = {key: value for key, value in cluster.brokers.config.items() if broker_effect(key) is Effect.ACTIVE}
    dynamic = {key: value for key, value in config.items() if is_dynamic(key)}
    return {key: value for key, value in config.items() if key not in dynamic}, dynamic


def is_dynamic(key: str) -> bool:
    """Whether a property can change as a default of all brokers without a restart. Secrets cannot: they stay in
    files."""
    setting = BROKER_SETTINGS.get(key)
    return setting is not None and setting.dynamic is Update.CLUSTER_WIDE and not setting.sensitive


def zookeeper_connect(cluster: Cluster) -> str:
    """Return the connect string of the cluster's ensemble."""
    if cluster.zookeeper.connect is not None:
        return cluster.zookeeper.connect
    service = names.zookeeper_nodes_service(cluster.name)
    hosts = (
        names.host(names.zookeeper_pod(cluster.name, member), service, cluster.namespace)
        for member in range(cluster.zookeeper.replicas)
    )
    return ",".join(f"{host}:{ensemble_security.client_port(cluster)}" for host in hosts)


def ensemble_properties(cluster: Cluster) -> dict[str, str]:
    """Return the properties of the cluster's own ensemble, without the list of members, which pods add."""
    secured = ensemble_security.member_properties(cluster)
    return {**_ZOOKEEPER_DEFAULTS, **cluster.zookeeper.config, **_ZOOKEEPER_FIXED, **secured}


def restart_hash(static: Mapping[str, str], template: Object) -> str:
    """Return the restart hash. It covers everything that requires a restart: the pod template and static properties.

    `template` is the pod template without the hash. The same resource has the same hash in every operator process.
    """
    text = json.dumps({"properties": dict(static), "template": template}, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:HASH_LETTERS]
