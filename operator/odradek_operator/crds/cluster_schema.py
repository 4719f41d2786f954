"""OpenAPI of a Cluster's specification, with the rules that the API server checks. Pure; the twin of `cluster_reader`.

Defaults are those of `types`, bounds those of the reader, so neither can say something else. Rules about changes are
here alone: only the API server knows what stood there before.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.crds import cluster_reader as limits
from odradek_operator.crds.fields import MAX_NAME_LENGTH
from odradek_operator.crds.openapi import (
    Schema,
    listed,
    not_among,
    properties,
    quantity,
    record,
    rule,
    ruled,
    text,
    truth,
    verbatim,
    whole,
)
from odradek_operator.crds.pod_schema import compute_resources, image, template
from odradek_operator.crds.types import (
    MAX_BROKERS,
    Brokers,
    Cluster,
    ListenerType,
    Monitoring,
    Rebalance,
    Spread,
    ZooKeeper,
)
from odradek_operator.objects.names import REPLICATION_LISTENER
from odradek_operator.objects.storage import DEFAULT_ZOOKEEPER_SIZE

MAX_VOLUMES: Final = 16
MAX_LISTENERS: Final = 16
MAX_RACKS: Final = 64
MAX_PEERS: Final = 16
MAX_SECRETS: Final = 16

_SAME_CLASS: Final = (
    "(has(self.storageClass) ? self.storageClass : '') == (has(oldSelf.storageClass) ? oldSelf.storageClass : '')"
)
_HAS_UNIT: Final = f"quantity(string(self.size)).compareTo(quantity('{limits.MIN_VOLUME_SIZE}')) >= 0"
_NO_UNIT: Final = f"The size is less than {limits.MIN_VOLUME_SIZE}: give it with its unit, such as 100Gi."


def cluster_spec() -> Schema:
    """The field `spec` of a Cluster."""
    return record(
        "What the cluster shall be. The operator brings it there and keeps it so; the status says how far it is.",
        {
            "version": text(
                "Version of the brokers: the tag of their image. Left out, it is the operator's own, so that an "
                "upgrade of the operator restarts the brokers with its version, one after the other.",
                pattern=limits.IMAGE_TAG_PATTERN,
                max_length=128,
            ),
            "brokers": _brokers(),
            "listeners": _listeners(),
            "zookeeper": _zookeeper(),
            "monitoring": _monitoring(),
            "networkPolicies": truth(
                "Whether NetworkPolicies are made: only brokers reach the brokers' own port, only brokers, operator "
                "and exporter reach ZooKeeper; Prometheus and operator reach the metrics; clients reach the listeners.",
                default=Cluster(name="").network_policies,
            ),
            "networkAccess": _network_access(),
        },
    )


def _brokers() -> Schema:
    default = Brokers()
    return record(
        "The brokers, all alike; their ids are 0, 1, 2 and so on, or begin at firstBrokerId.",
        {
            "replicas": whole(
                "How many brokers there are. When it grows, replicas move to the new brokers; when it shrinks, the "
                "brokers with the highest ids are emptied first. Both are bounded by spec.brokers.rebalance.",
                low=1,
                high=MAX_BROKERS,
                default=default.replicas,
            ),
            "firstBrokerId": whole(
                "The lowest broker id; the others follow. For a cluster that joins an ensemble (zookeeper.connect) in "
                "which other brokers have the ids from 0 on. It can change only while the cluster has no broker.",
                low=0,
                high=limits.MAX_FIRST_BROKER_ID,
                default=default.first_id,
            ),
            "storage": _storage(),
            "rack": ruled(
                record(
                    "Racks, or zones: replicas of a partition are spread over them.",
                    {
                        "topologyKey": text(
                            "The label of nodes that tells their rack, such as topology.kubernetes.io/zone.",
                            max_length=317,
                        ),
                        "names": listed(
                            "Racks of the brokers of an embedded cluster, in turn. On Kubernetes nodes tell them.",
                            text("Name of a rack.", max_length=MAX_NAME_LENGTH),
                            max_items=MAX_RACKS,
                        ),
                    },
                ),
                rule("has(self.topologyKey) || has(self.names)", "rack needs topologyKey: the label that tells it."),
            ),
            "spread": _spread("brokers", default=default.spread),
            "image": image("the brokers"),
            "resources": compute_resources("each broker"),
            "template": template("brokers"),
            "rebalance": _rebalance(),
            **_broker_config(),
        },
        default={},
    )


def _broker_config() -> dict[str, Schema]:
    return {
        "config": ruled(
            properties(
                "Kafka's broker properties, by Kafka's names. What a running broker can change is changed without "
                "a restart. Ids, listeners, racks, directories and ZooKeeper are set by the operator. Wrong values "
                "stand in the status; unknown names are left out and stand there as warnings, with the nearest name."
            ),
            rule(
                not_among(limits.OPERATED_KEYS),
                "A property here is one that the operator sets for each broker: remove it. These are: "
                f"{', '.join(sorted(limits.OPERATED_KEYS))}.",
            ),
            rule(
                not_among(limits.SENSITIVE_KEYS),
                "A property here is a password, and this resource can be read by many: put it into a Secret and "
                f"name that in configFrom. These are: {', '.join(sorted(limits.SENSITIVE_KEYS))}.",
            ),
        ),
        "configFrom": listed(
            "Secrets of this namespace whose entries are broker properties too: each key is the name of a "
            "property, such as zookeeper.ssl.keystore.password. They take precedence over config. The brokers "
            "read them at their start: restart the brokers after a change.",
            record(
                "One source.",
                {
                    "secretRef": record(
                        "A Secret.",
                        {"name": text("Its name.", max_length=MAX_NAME_LENGTH)},
                        required=["name"],
                    )
                },
                required=["secretRef"],
            ),
            max_items=MAX_SECRETS,
        ),
    }


def _spread(pods: str, *, default: Spread | None = None) -> Schema:
    """Without a default in the ensemble's, which must be missing where the ensemble is another's."""
    return text(
        f"Required: a node gets a second one of the {pods} only when every node that they may run on has one, unless "
        "their volumes leave no other choice. Preferred: the scheduler tries. A change concerns pods that start from "
        f"then on. {Spread.REQUIRED.value} when left out; an affinity.podAntiAffinity in the template replaces it.",
        values=[one.value for one in Spread],
        default=None if default is None else default.value,
    )


def _storage() -> Schema:
    default = Brokers()
    volume = ruled(
        record(
            "One disk of each broker.",
            {
                "id": whole("Number of the volume, part of the names of its claims.", low=0, high=limits.MAX_VOLUME_ID),
                "size": quantity("Size of the claim, such as 100Gi. Grows if its class allows it; never shrinks."),
                "storageClass": text(
                    "StorageClass of the claim; left out, the cluster's default one. Local SSDs are best.",
                    max_length=MAX_NAME_LENGTH,
                ),
            },
            required=["id", "size"],
        ),
        rule(_HAS_UNIT, _NO_UNIT),
        rule(_SAME_CLASS, "The storageClass of a volume cannot change: set it back."),
    )
    return record(
        "Where the records are.",
        {
            "volumes": ruled(
                listed(
                    "The disks of each broker, each a log directory. Without any, records are kept in the pod and lost "
                    "with it: only for trying things out.",
                    volume,
                    max_items=MAX_VOLUMES,
                    key="id",
                    default=[],
                ),
                rule(
                    "size(self) == size(oldSelf) && self.all(one, oldSelf.exists(old, old.id == one.id))",
                    "Volumes can be neither added nor removed later, since their claims belong to the pods: "
                    "set the list back, or make another cluster.",
                ),
            ),
            "deleteClaims": truth(
                "Whether the claims of the brokers, with all records, are deleted when the Cluster is. If not, they "
                "stay, and a Cluster of the same name finds its records again.",
                default=default.delete_claims,
            ),
            "releaseLostAfterSeconds": whole(
                "Seconds that a broker's node or disk may be gone before its claim is given up, so that the broker "
                "comes back elsewhere with an empty disk and fetches its replicas anew. Only when each of its "
                "partitions has an in-sync replica elsewhere. 0 never gives up.",
                low=0,
                high=limits.MAX_RELEASE_SECONDS,
                default=default.release_lost_after_seconds,
            ),
        },
        default={},
    )


def _rebalance() -> Schema:
    default = Rebalance()
    return record(
        "How replicas move when the number of brokers, or the replication factor of a topic, changes.",
        {
            "partitions": whole(
                "At most so many partitions are on the move at once.",
                low=1,
                high=limits.MAX_REBALANCED_PARTITIONS,
                default=default.partitions,
            ),
            "throttle": quantity(
                "Bytes a second, of each broker, that moving replicas may take, in and out; 50M are 50 megabytes.",
                default=f"{default.throttle_bytes_per_second // 1_000_000}M",
            ),
        },
        default={},
    )


def _listeners() -> Schema:
    default = Cluster(name="").listeners
    listener = ruled(
        record(
            "One port for clients.",
            {
                "name": text(
                    "Name of the listener: lower-case letters and digits.",
                    pattern="[a-z0-9]+",
                    max_length=limits.MAX_LISTENER_NAME_LENGTH,
                ),
                "port": whole("Port of the broker pods, and of their Services.", low=1, high=65_535),
                "type": text(
                    "internal: from within Kubernetes. nodeport: through a port of the nodes. loadbalancer: through a "
                    "load balancer for each broker and one for all.",
                    values=[kind.value for kind in ListenerType],
                    default=ListenerType.INTERNAL.value,
                ),
                "tls": truth(
                    "Whether clients connect by TLS. Comes with a later version on Kubernetes.", default=False
                ),
                "authentication": record(
                    "How clients prove who they are; left out, everybody is let in. Comes with a later version.",
                    {"type": text("By a certificate, or by a password.", values=limits.AUTHENTICATIONS)},
                    required=["type"],
                ),
                "insecure": truth(
                    "Allows a listener of type nodeport or loadbalancer without encryption and authentication. "
                    "Everybody who reaches its port can read, write and delete everything.",
                    default=False,
                ),
            },
            required=["name", "port"],
        ),
        *_listener_rules(),
    )
    return ruled(
        listed(
            "Where clients connect; each listener has a port of its own.",
            listener,
            max_items=MAX_LISTENERS,
            key="name",
            default=[
                {"name": one.name, "port": one.port, "type": one.type.value, "tls": one.tls, "insecure": one.insecure}
                for one in default
            ],
        )
        | {"minItems": 1},
        rule(
            "self.all(one, self.exists_one(other, other.port == one.port))",
            "Two listeners have the same port: give each its own.",
        ),
    )


def _listener_rules() -> list[dict[str, str]]:
    return [
        rule(
            "self.type == 'internal' || self.insecure",
            "A listener of type nodeport or loadbalancer has neither encryption nor authentication in this version: "
            "everybody who reaches its port can read, write and delete everything. Set insecure: true to accept that.",
        ),
        rule(
            f"self.name != '{REPLICATION_LISTENER}'",
            f"The name {REPLICATION_LISTENER} is the brokers' own: choose another.",
        ),
        rule(
            f"!(self.port in {list(limits.RESERVED_PORTS)})",
            f"The ports {' and '.join(map(str, limits.RESERVED_PORTS))} are used by the broker pods themselves: "
            "choose another.",
        ),
        rule(
            "!self.tls && !has(self.authentication)",
            "tls and authentication come with a later version on Kubernetes: remove them from this listener.",
        ),
    ]


def _zookeeper() -> Schema:
    return ruled(
        record(
            "The ensemble that knows the cluster's metadata: one of the cluster's own, or with connect another one.",
            {
                "replicas": ruled(
                    whole(
                        f"How many members it has, {ZooKeeper().replicas} when left out. Odd; it lives as long as more "
                        "than half of them do. Cannot change later: the operator keeps the number that there is.",
                        low=1,
                        high=limits.MAX_ZOOKEEPERS,
                    ),
                    rule("self % 2 == 1", "replicas must be odd: an even ensemble survives no more failures."),
                ),
                "storage": _zookeeper_storage(),
                "spread": _spread("members"),
                "image": image("the ensemble"),
                "resources": compute_resources("each member"),
                "template": template("the ensemble"),
                "config": ruled(
                    properties("ZooKeeper's properties, such as tickTime. Each change restarts its members in turn."),
                    rule(
                        f"{not_among(limits.OPERATED_ZOOKEEPER_KEYS)} && self.all(key, !key.startsWith('server.'))",
                        "A property here is one that the operator sets: remove it. These are: server.*, "
                        f"{', '.join(sorted(limits.OPERATED_ZOOKEEPER_KEYS))}.",
                    ),
                    rule(
                        "self.all(key, !key.endsWith('assword'))",
                        "A property here is a password, and this resource can be read by many: remove it.",
                    ),
                ),
                "connect": text(
                    "An ensemble that is there already: host:port,host:port/chroot. Nothing is started for it.",
                    max_length=2_048,
                ),
            },
            default={},
        ),
        *_zookeeper_rules(),
    )


def _zookeeper_storage() -> Schema:
    return ruled(
        record(
            f"The disk of each member; left out, {DEFAULT_ZOOKEEPER_SIZE} of the cluster's default StorageClass.",
            {
                "size": quantity("Size of the claim, such as 10Gi. Grows if its class allows it; never shrinks."),
                "storageClass": text(
                    "StorageClass of the claim; left out, the cluster's default one.", max_length=MAX_NAME_LENGTH
                ),
                "deleteClaims": truth(
                    "Whether the claims of the ensemble are deleted when the Cluster is. Without them nobody knows any "
                    "more what the brokers' disks hold: let them stay when those stay.",
                    default=ZooKeeper().delete_claims,
                ),
                "releaseLostAfterSeconds": whole(
                    "Seconds that a member's node or disk may be gone before its claim is given up, so that the member "
                    "begins anew elsewhere and copies from the leader. Only while all other members serve. 0 never "
                    "gives up.",
                    low=0,
                    high=limits.MAX_RELEASE_SECONDS,
                    default=ZooKeeper().release_lost_after_seconds,
                ),
            },
            required=["size"],
        ),
        rule(_HAS_UNIT, _NO_UNIT),
        rule(_SAME_CLASS, "The storageClass of ZooKeeper cannot change: set it back."),
    )


def _zookeeper_rules() -> list[dict[str, str]]:
    """Which fields go together, and what an ensemble can never become."""
    own = list(limits.OWN_ENSEMBLE)
    return [
        rule(
            f"!has(self.connect) || !({' || '.join(f'has(self.{name})' for name in own)})",
            f"connect names an ensemble that is there already: leave out {', '.join(own)}.",
        ),
        rule(
            "has(self.connect) == has(oldSelf.connect)",
            "A cluster cannot change between an ensemble of its own and another one: make another cluster.",
        ),
        rule(
            "has(self.storage) == has(oldSelf.storage)",
            "zookeeper.storage can be neither added nor removed later: set it back.",
        ),
    ]


def _network_access() -> Schema:
    def peers(description: str) -> Schema:
        peer = verbatim("A peer as in a NetworkPolicy: podSelector, namespaceSelector or ipBlock.")
        return listed(description, peer, max_items=MAX_PEERS)

    return record(
        "Which peers reach ports that no client needs, beside the pods of the cluster and the operator.",
        {
            "replication": peers(
                "Who reaches port 9091, such as brokers outside of this cluster. Left out, nobody; with "
                "zookeeper.connect everybody, as such brokers may replicate from these."
            ),
            "metrics": peers(
                "Who reads metrics on port 9404. Left out, pods with the label app.kubernetes.io/name: prometheus."
            ),
            "zookeeper": peers("Who reaches ZooKeeper on port 2181, such as tools."),
        },
    )


def _monitoring() -> Schema:
    default = Monitoring()
    return record(
        "What is made for Prometheus and Grafana. Every pod serves its metrics on port 9404 in any case.",
        {
            "podMonitors": truth(
                "Whether PodMonitor objects are made; the Prometheus operator must be installed.",
                default=default.pod_monitors,
            ),
            "rules": truth(
                "Whether a PrometheusRule with the alert rules is made; the Prometheus operator must be installed.",
                default=default.rules,
            ),
            "dashboards": truth(
                "Whether ConfigMaps with the dashboards are made, labelled for Grafana's side-car.",
                default=default.dashboards,
            ),
            "exporter": record(
                "The process that serves sizes of topics and lag of consumer groups.",
                {
                    "enabled": truth(
                        "Whether it runs. Without it, Topic statuses have neither sizes nor lag.",
                        default=default.exporter,
                    ),
                    "resources": compute_resources("the exporter"),
                },
                default={},
            ),
        },
        default={},
    )
