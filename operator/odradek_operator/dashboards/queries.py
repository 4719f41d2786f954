"""Placeholders of queries, and queries that are used more than once. Pure.

A query contains placeholders for the selection of series: `SCOPE` in braces selects the cluster, `PODS` the selected
pods of it, `CLAIMS` its volume claims (series of the kubelet have no cluster), and `OPERATED` the operator's series
about it, which are in the operator's namespace. In a dashboard they are filled with its variables, in an alert of one
cluster with its name, and in an alert of all clusters with a selection of all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

CLUSTER: Final = "namespace, strimzi_io_cluster"
"""The labels that identify a cluster, for `by`."""

_PLACEHOLDER: Final = re.compile(r"\b(SCOPE|PODS|CLAIMS|OPERATED)\b(, )?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Values of the placeholders; empty for everything."""

    cluster: str = ""
    pods: str = ""
    claims: str = ""
    operated: str = ""

    def fill(self, query: str) -> str:
        """Return the query with its placeholders filled."""
        words = {
            "SCOPE": self.cluster,
            "PODS": self.pods,
            "CLAIMS": self.claims,
            "OPERATED": self.operated,
        }

        def word(found: re.Match[str]) -> str:
            text = words[found[1]]
            return text + (found[2] or "") if text else ""

        return _PLACEHOLDER.sub(word, query).replace("{}", "")


def _claims(cluster: str) -> str:
    """Return a matcher by name; `cluster` is a name or a regular expression."""
    return f'persistentvolumeclaim=~"data-([0-9]+-)?{cluster}-(kafka|zookeeper)-[0-9]+"'


def only(namespace: str, cluster: str) -> Scope:
    """Return the scope of one cluster, for alerts. Both names are those of Kubernetes objects."""
    return Scope(
        cluster=f'namespace="{namespace}", strimzi_io_cluster="{cluster}"',
        claims=f'namespace="{namespace}", {_claims(cluster)}',
        operated=f'cluster_namespace="{namespace}", strimzi_io_cluster="{cluster}"',
    )


EVERY: Final = Scope(claims=_claims(".+"))
"""All clusters."""

CHOSEN: Final = replace(
    only("$namespace", "$cluster"),
    pods='namespace="$namespace", strimzi_io_cluster="$cluster", kubernetes_pod_name=~"$pod"',
)
"""The cluster and pods selected in a dashboard."""

# Queries of both dashboards and alerts.
CONTROLLERS: Final = f"sum by ({CLUSTER}) (kafka_controller_kafkacontroller_activecontrollercount{{SCOPE}})"
OFFLINE_PARTITIONS: Final = f"sum by ({CLUSTER}) (kafka_controller_kafkacontroller_offlinepartitionscount{{SCOPE}})"
UNDER_REPLICATED: Final = f"sum by ({CLUSTER}) (kafka_server_replicamanager_underreplicatedpartitions{{SCOPE}})"
UNDER_MIN_ISR: Final = f"sum by ({CLUSTER}) (kafka_server_replicamanager_underminisrpartitioncount{{SCOPE}})"
OFFLINE_DIRECTORIES: Final = (
    f"sum by ({CLUSTER}, kubernetes_pod_name) (kafka_log_logmanager_offlinelogdirectorycount{{SCOPE}})"
)
LOOP_IDLE: Final = "kafka_network_socketserver_networkprocessoravgidle_percent{SCOPE}"
CLAIM_FREE: Final = "kubelet_volume_stats_available_bytes{CLAIMS} / kubelet_volume_stats_capacity_bytes{CLAIMS}"
BROKERS_CLAIM: Final = 'CLAIMS, persistentvolumeclaim=~".+-kafka-[0-9]+"'
ENSEMBLE_CLAIM: Final = 'CLAIMS, persistentvolumeclaim=~".+-zookeeper-[0-9]+"'
GROUP_LAG: Final = f"sum by ({CLUSTER}, consumergroup, topic) (kafka_consumergroup_lag{{SCOPE}} >= 0)"
GROUP_LAG_SECONDS: Final = f"max by ({CLUSTER}, consumergroup, topic) (odradek_consumergroup_lag_seconds{{SCOPE}})"
ZOOKEEPER_LATENCY: Final = "zookeeper_avgrequestlatency{SCOPE}"
ZOOKEEPER_OUTSTANDING: Final = "zookeeper_outstandingrequests{SCOPE}"
