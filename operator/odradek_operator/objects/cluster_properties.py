"""The properties of a cluster's brokers and of its ensemble: what stands in files and what in ZooKeeper. Pure.

Enters: a Cluster. Leaves: `Properties`, the text of files, and the hash by which outdated pods are known. Properties
that brokers take over while they run never stand in the file: a value there would come back when the one in ZooKeeper
is removed. What differs from broker to broker (id, rack, listeners) is added in the pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from odradek.base.config import BROKER_SETTINGS, Effect, broker_effect
from odradek.base.settings import Update
from odradek_operator.crds.types import Cluster
from odradek_operator.objects import names, storage
from odradek_operator.objects.parts import Object

HASH_LETTERS: Final = 16
_MAX_FACTOR: Final = 3

_DEFAULTS: Final[Mapping[str, str]] = {
    # A crash ends its session at once; this is for lost machines, and Kafka's own value outlasts a slow network.
    "zookeeper.session.timeout.ms": "18000",
    # A pod that is deleted hands its partitions over first; the grace period of pods leaves time for it.
    "controlled.shutdown.enable": "true",
}
"""What the resource may override."""

_ZOOKEEPER_DEFAULTS: Final[Mapping[str, str]] = {
    "tickTime": "2000",
    "initLimit": "10",
    "syncLimit": "5",
    "maxSessionTimeout": "60000",
    "maxClientCnxns": "0",
    "autopurge.purgeInterval": "1",
    "autopurge.snapRetainCount": "3",
    # A member's name may come into DNS only after its start, so that it could not bind to it.
    "quorumListenOnAllIPs": "true",
    # A single member takes the same way as three, and has the same series.
    "standaloneEnabled": "false",
}
"""What the resource may override."""

_ZOOKEEPER_FIXED: Final[Mapping[str, str]] = {
    "dataDir": storage.ZOOKEEPER_DATA,
    "clientPort": str(names.ZOOKEEPER_CLIENT_PORT),
    "admin.enableServer": "false",
    # The pod reads `mntr` for its metrics, the operator `srvr` before it restarts members.
    "4lw.commands.whitelist": "mntr,ruok,srvr",
}
"""What follows from the pod; the resource is refused when it says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """The properties of all brokers of a cluster, by where they stand and by what a change of them takes."""

    static: Mapping[str, str]
    """In the file; a change takes a restart of every broker."""
    sized: Mapping[str, str]
    """In the file; defaults that follow from the number of brokers. New values are in force from the next restart of
    each broker on, and are no reason for one: they concern only topics that brokers make of their own accord."""
    dynamic: Mapping[str, str]
    """In ZooKeeper, as the default of all brokers; in force at once."""

    @property
    def file(self) -> dict[str, str]:
        """What stands in the brokers' file."""
        return {**self.sized, **self.static}


def split(cluster: Cluster) -> Properties:
    """The brokers' properties: those of the resource, over defaults, below what follows from the resource."""
    # What has no effect must not restart a broker, and what is misspelled must not reach one.
    config = {key: value for key, value in cluster.brokers.config.items() if broker_effect(key) is Effect.ACTIVE}
    dynamic = {key: value for key, value in config.items() if is_dynamic(key)}
    factor = str(min(_MAX_FACTOR, cluster.brokers.replicas))
    sized = {"default.replication.factor": factor, "offsets.topic.replication.factor": factor}
    return Properties(
        static={
            **_DEFAULTS,
            **{key: value for key, value in config.items() if key not in dynamic},
            "zookeeper.connect": zookeeper_connect(cluster),
            "log.dirs": ",".join(storage.log_dirs(cluster.brokers)),
            "metrics.port": str(names.METRICS_PORT),
        },
        sized={key: value for key, value in sized.items() if key not in config},
        dynamic=dynamic,
    )


def is_dynamic(key: str) -> bool:
    """Whether brokers take a property over while they run, as the default of all of them. Secrets stay in the file."""
    setting = BROKER_SETTINGS.get(key)
    return setting is not None and setting.dynamic is Update.CLUSTER_WIDE and not setting.sensitive


def zookeeper_connect(cluster: Cluster) -> str:
    """The connect string of the cluster's ensemble, its own or the one that it was given."""
    if cluster.zookeeper.connect is not None:
        return cluster.zookeeper.connect
    service = names.zookeeper_nodes_service(cluster.name)
    hosts = (
        names.host(names.zookeeper_pod(cluster.name, member), service, cluster.namespace)
        for member in range(cluster.zookeeper.replicas)
    )
    return ",".join(f"{host}:{names.ZOOKEEPER_CLIENT_PORT}" for host in hosts)


def ensemble_properties(cluster: Cluster) -> dict[str, str]:
    """The properties of every member of the cluster's own ensemble, without the list of members."""
    return {**_ZOOKEEPER_DEFAULTS, **cluster.zookeeper.config, **_ZOOKEEPER_FIXED}


def restart_hash(static: Mapping[str, str], template: Object) -> str:
    """What changes whenever a running pod is outdated: by its image, its specification, its labels, its properties.

    `template` is the pod template before the hash stands in it. The same wishes give the same hash in every operator.
    """
    text = json.dumps({"properties": dict(static), "template": template}, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:HASH_LETTERS]
