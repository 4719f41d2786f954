"""The names, labels, ports and paths of a cluster's Kubernetes objects. Pure.

The builders in this package, the running operator (`kube`) and the pods (`pod`) use them, so each is defined once.
Names and labels match those that existing Kafka dashboards and alerts expect (`docs/design/0009`).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

FIELD_MANAGER: Final = "odradek-operator"
CLUSTER_LABEL: Final = "odradek.dev/cluster"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
NAMESPACE_LABEL: Final = "odradek.dev/namespace"
"""Label on objects, not on pods. It identifies the cluster's namespace on cluster-scoped objects."""
OPERATOR_LABELS: Final = {"app.kubernetes.io/name": "odradek", COMPONENT_LABEL: "operator"}
"""Labels of the operator's pods, which the chart sets."""
RESTART_HASH: Final = "odradek.dev/restart-hash"
"""Annotation of pod templates. A pod whose value differs from the template's is outdated and will be restarted."""
PAUSED: Final = "odradek.dev/paused"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""Label that Kubernetes sets on nodes."""
NODE_READER: Final = "odradek-node-reader"
"""ClusterRole in the chart that allows broker pods to read the labels and addresses of nodes."""

METRICS_PORT: Final = 9404
METRICS_PORT_NAME: Final = "tcp-prometheus"
REPLICATION_LISTENER: Final = "replication"
REPLICATION_PORT: Final = 9091
SECURE_REPLICATION_LISTENER: Final = "replicationtls"
SECURE_REPLICATION_PORT: Final = 9090
"""Listener and port between brokers with TLS, in a cluster with a listener with TLS or authentication."""
ZOOKEEPER_CLIENT_PORT: Final = 2181
ZOOKEEPER_TLS_PORT: Final = 2182
"""Port of the ensemble for clients with TLS, in a cluster with a listener with TLS or authentication."""
ZOOKEEPER_PEER_PORT: Final = 2888
ZOOKEEPER_ELECTION_PORT: Final = 3888

USER_ID: Final = 10001
CONFIG_FOLDER: Final = "/etc/odradek"
SECRETS_FOLDER: Final = "/etc/odradek-secrets"
"""Folder in a broker's container with the Secrets of `spec.brokers.configFrom`, each in a subfolder named by its
index."""
BROKER_LINK: Final = "BROKER_LINK"
"""Environment variable of brokers with their `BrokerLink`. Without it, they have no TLS among themselves."""
ENSEMBLE_LINK: Final = "ENSEMBLE_LINK"
"""Environment variable of members with their `EnsembleLink`. Without it, they have no TLS."""
CERTIFICATES_DIGEST: Final = "CERTIFICATES_DIGEST"
"""Environment variable of members with the digest of their certificates, so that new ones restart them."""
CERTIFICATES_FOLDER: Final = "/etc/odradek-certificates"
"""Folder with the certificates of the cluster in the containers of brokers, members and the exporter."""
OPERATOR_KEYSTORE: Final = "operator.pem"
ZOOKEEPER_KEYSTORE: Final = "zookeeper.pem"
"""File with the key and the certificate of the members."""
CLUSTER_CA_FILE: Final = "cluster-ca.crt"
CLIENTS_CA_FILE: Final = "clients-ca.crt"
SERVICE_ACCOUNT_KEYS_FILE: Final = "service-account-keys.json"
"""The keys of the API server, with which brokers verify the tokens of ServiceAccounts."""
CLIENT_CONFIG_FILE: Final = "client.properties"
ORGANIZATION: Final = "odradek.dev"
"""Organization in the certificates of brokers and operator. Users have none, so no user can have their names."""
BROKER_PROPERTIES: Final = "server.properties"
ZOOKEEPER_PROPERTIES: Final = "zookeeper.properties"
DATA_FOLDER: Final = "/var/lib/odradek"


ENSEMBLE_STATE: Final = "ensemble.state"
"""File next to the ensemble's properties with its state, `FORMING` or `FORMED`."""
FORMING: Final = "forming"
"""The ensemble is new. Members without data may vote."""
FORMED: Final = "formed"
"""A majority has held data. A member without data copies it from the leader before it votes."""
MAX_MEMBERS: Final = 255
"""Maximum size of an ensemble: ZooKeeper's member ids range from 1 to 255."""


class BrokerLink(Enum):
    """How the brokers of a cluster connect to each other. A running cluster changes to TLS in this order, with one
    roll from each value to the next (docs/design/0025)."""

    PLAINTEXT = "plaintext"
    BOTH = "both"
    """They also listen with TLS, and connect without it."""
    CHANGED = "changed"
    """They connect with TLS, and also listen without it."""
    TLS = "tls"

    @property
    def listens_plain(self) -> bool:
        """Whether brokers have the listener without TLS."""
        return self is not BrokerLink.TLS

    @property
    def listens_tls(self) -> bool:
        """Whether brokers have the listener with TLS."""
        return self is not BrokerLink.PLAINTEXT

    @property
    def connects_tls(self) -> bool:
        """Whether brokers connect to each other with TLS."""
        return self in (BrokerLink.CHANGED, BrokerLink.TLS)


class EnsembleLink(Enum):
    """How clients and members connect to the members of a cluster's own ensemble. A running cluster changes to TLS in
    this order, with at most one roll of the ensemble and one of the brokers for each value (docs/design/0025)."""

    PLAINTEXT = "plaintext"
    BOTH = "both"
    """Members also accept TLS."""
    CHANGED = "changed"
    """Brokers, operator and members connect with TLS. Members also accept plaintext."""
    TLS = "tls"
    """Members accept only TLS, with a certificate of the cluster. Brokers create znodes with ACLs."""
    OWNED = "owned"
    """As TLS, and all other znodes have ACLs, too."""

    @property
    def accepts_plain(self) -> bool:
        """Whether members accept connections without TLS from other pods."""
        return not self.is_closed

    @property
    def accepts_tls(self) -> bool:
        """Whether members accept connections with TLS."""
        return self is not EnsembleLink.PLAINTEXT

    @property
    def connects_tls(self) -> bool:
        """Whether brokers, operator and members connect with TLS."""
        return self is EnsembleLink.CHANGED or self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether nobody connects without a certificate of the cluster."""
        return self in (EnsembleLink.TLS, EnsembleLink.OWNED)


class Component(Enum):
    """The components of a cluster."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"
    EXPORTER = "exporter"


def kafka(cluster: str) -> str:
    """Return the name of the brokers' StatefulSet and ServiceAccount."""
    return f"{cluster}-kafka"


def broker_pod(cluster: str, ordinal: int) -> str:
    """Return the name of a pod of brokers."""
    return f"{cluster}-kafka-{ordinal}"


def brokers_service(cluster: str) -> str:
    """Return the name of the brokers' headless Service, with a DNS name for each pod, ready or not."""
    return f"{cluster}-kafka-brokers"


def bootstrap_service(cluster: str) -> str:
    """Return the name of the Service that selects all ready brokers, for internal listeners."""
    return f"{cluster}-kafka-bootstrap"


def external_bootstrap_service(cluster: str, listener: str) -> str:
    """Return the name of the Service that selects all ready brokers, for an external listener."""
    return f"{cluster}-kafka-{listener}-bootstrap"


def external_broker_service(cluster: str, listener: str, broker_id: int) -> str:
    """Return the name of the Service of one broker, for an external listener."""
    return f"{cluster}-kafka-{listener}-{broker_id}"


def kafka_config(cluster: str) -> str:
    """Return the name of the ConfigMap with the brokers' properties."""
    return f"{cluster}-kafka-config"


def cluster_ca(cluster: str) -> str:
    """Return the name of the Secret with the authority of brokers and operator, and its key."""
    return f"{cluster}-cluster-ca"


def cluster_ca_cert(cluster: str) -> str:
    """Return the name of the Secret with the authorities of brokers, for clients."""
    return f"{cluster}-cluster-ca-cert"


def replace_ca(kind: str) -> str:
    """Return the annotation of a Cluster that asks for the replacement of an authority. `kind`: cluster or clients."""
    return f"odradek.dev/replace-{kind}-ca"


def issued_ca(authority: str) -> str:
    """Return the name of the Secret in which cert-manager stores an authority. `authority`: that of its Certificate."""
    return f"{authority}-issued"


def clients_ca(cluster: str) -> str:
    """Return the name of the Secret with the authority of users, and its key."""
    return f"{cluster}-clients-ca"


def clients_ca_cert(cluster: str) -> str:
    """Return the name of the Secret with the authorities of users, without keys."""
    return f"{cluster}-clients-ca-cert"


def kafka_certs(cluster: str) -> str:
    """Return the name of the Secret with the certificates and keys of brokers."""
    return f"{cluster}-kafka-certs"


def operator_certs(cluster: str) -> str:
    """Return the name of the Secret with the certificate and key of the operator, which the exporter uses, too."""
    return f"{cluster}-operator-certs"


def zookeeper_certs(cluster: str) -> str:
    """Return the name of the Secret with the certificate and key of the members of the ensemble."""
    return f"{cluster}-zookeeper-certs"


def broker_keystore(broker: int) -> str:
    """Return the name of the file with the key and the certificate of a broker."""
    return f"broker-{broker}.pem"


def broker_identity(cluster: str) -> str:
    """Return the common name in the certificates of brokers."""
    return f"{cluster}-kafka"


def operator_identity(cluster: str) -> str:
    """Return the common name in the certificate of the operator."""
    return f"{cluster}-operator"


def zookeeper_identity(cluster: str) -> str:
    """Return the common name in the certificate of the members of the ensemble."""
    return f"{cluster}-zookeeper"


def subject(identity: str) -> str:
    """Return the subject of a certificate of the cluster. `identity`: its common name."""
    return f"CN={identity},O={ORGANIZATION}"


def token_audience(cluster: str, namespace: str) -> str:
    """Return the audience that tokens of ServiceAccounts have for a cluster. No other cluster accepts it."""
    return f"{namespace}.{cluster}"


def record(cluster: str) -> str:
    """Return the name of the ConfigMap with the cluster's record, which outlives the Cluster resource."""
    return f"{cluster}-members"


def zookeeper(cluster: str) -> str:
    """Return the name of the ensemble's StatefulSet and ServiceAccount."""
    return f"{cluster}-zookeeper"


def zookeeper_pod(cluster: str, member: int) -> str:
    """Return the name of the pod of an ensemble member."""
    return f"{cluster}-zookeeper-{member}"


def zookeeper_nodes_service(cluster: str) -> str:
    """Return the name of the ensemble's headless Service."""
    return f"{cluster}-zookeeper-nodes"


def zookeeper_client_service(cluster: str) -> str:
    """Return the name of the Service that selects all ready members."""
    return f"{cluster}-zookeeper-client"


def zookeeper_config(cluster: str) -> str:
    """Return the name of the ConfigMap with the ensemble's properties."""
    return f"{cluster}-zookeeper-config"


def exporter(cluster: str) -> str:
    """Return the name of the exporter's Deployment, Service and ServiceAccount."""
    return f"{cluster}-kafka-exporter"


def pod_monitor(cluster: str) -> str:
    """Return the name of the PodMonitor for all pods of the cluster."""
    return f"{cluster}-pods"


def alerts(cluster: str) -> str:
    """Return the name of the PrometheusRule with the alerts."""
    return f"{cluster}-alerts"


def dashboard(cluster: str, title: str) -> str:
    """Return the name of the ConfigMap with one dashboard. Characters that names cannot contain are replaced by `-`."""
    return f"{cluster}-dashboard-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}"


def node_reader_binding(namespace: str, cluster: str) -> str:
    """Return the name of the ClusterRoleBinding of the brokers' ServiceAccount.

    It is unique among all clusters: a namespace contains no dot, so the first dot ends the namespace.
    """
    return f"odradek-{namespace}.{cluster}-node-reader"


def volume_claim_template(volume_id: int, *, volumes: int) -> str:
    """Return the name of a claim template: `data` if brokers have one volume, `data-ID` if they have several."""
    return "data" if volumes == 1 else f"data-{volume_id}"


def log_dir(volume_id: int) -> str:
    """Return the path of the log directory on a volume. It is a subfolder, because the root contains `lost+found`."""
    return f"{DATA_FOLDER}/data-{volume_id}/kafka-log"


def host(pod: str, service: str, namespace: str) -> str:
    """Return the DNS name of a pod. The domain is omitted, because it may differ from `cluster.local`."""
    return f"{pod}.{service}.{namespace}.svc"


def service_suffixes(namespace: str) -> tuple[str, ...]:
    """Return what may follow the name of a Service where pods of its namespace, or of others, use it. The domain may
    differ elsewhere."""
    return ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")


def selector(cluster: str, component: Component) -> dict[str, str]:
    """Return the labels with which Services and StatefulSets select their pods.

    They must never change, because the selector of a StatefulSet is immutable.
    """
    return {CLUSTER_LABEL: cluster, COMPONENT_LABEL: component.value}


def labels(cluster: str, component: Component) -> dict[str, str]:
    """Return the labels of every object of a cluster."""
    return {
        "app.kubernetes.io/name": "odradek",
        "app.kubernetes.io/instance": cluster,
        MANAGED_BY_LABEL: FIELD_MANAGER,
        **selector(cluster, component),
    }


def pod_labels(cluster: str, component: Component) -> dict[str, str]:
    """Return the labels of pods: `labels`, and those that the PodMonitor copies to series."""
    part = {Component.KAFKA: kafka, Component.ZOOKEEPER: zookeeper, Component.EXPORTER: exporter}[component]
    return {
        **labels(cluster, component),
        "strimzi.io/cluster": cluster,
        "strimzi.io/kind": "Kafka",
        "strimzi.io/name": part(cluster),
    }


def ordinal(pod: str) -> int:
    """Return the ordinal number at the end of the name of a StatefulSet's pod. Raises `ValueError` if there is none."""
    return int(pod.rsplit("-", 1)[1])
