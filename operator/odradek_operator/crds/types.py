"""The resources of `odradek.dev/v1` as values. Pure.

The types of one module describe one part of the resources: each field once, with its type, default, bounds, rules and
description. `reader` reads documents with them, and `schema` generates the CRDs from them (docs/design/0013).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek_operator.crds.broker_types import Brokers as Brokers
from odradek_operator.crds.broker_types import Rebalance as Rebalance
from odradek_operator.crds.broker_types import Volume as Volume
from odradek_operator.crds.cluster_types import DEFAULT_VERSION as DEFAULT_VERSION
from odradek_operator.crds.cluster_types import DEFAULT_ZOOKEEPER_SIZE as DEFAULT_ZOOKEEPER_SIZE
from odradek_operator.crds.cluster_types import Cluster as Cluster
from odradek_operator.crds.cluster_types import Monitoring as Monitoring
from odradek_operator.crds.cluster_types import NetworkAccess as NetworkAccess
from odradek_operator.crds.cluster_types import ZooKeeper as ZooKeeper
from odradek_operator.crds.fields import Json as Json
from odradek_operator.crds.listener_types import OAUTH_LOGIN as OAUTH_LOGIN
from odradek_operator.crds.listener_types import SERVICE_ACCOUNT_LOGIN as SERVICE_ACCOUNT_LOGIN
from odradek_operator.crds.listener_types import TLS_LOGIN as TLS_LOGIN
from odradek_operator.crds.listener_types import TOKEN_LOGINS as TOKEN_LOGINS
from odradek_operator.crds.listener_types import CertificateAuthorities as CertificateAuthorities
from odradek_operator.crds.listener_types import CertificateAuthoritySource as CertificateAuthoritySource
from odradek_operator.crds.listener_types import IssuerReference as IssuerReference
from odradek_operator.crds.listener_types import Listener as Listener
from odradek_operator.crds.listener_types import ListenerAuthentication as ListenerAuthentication
from odradek_operator.crds.listener_types import ListenerType as ListenerType
from odradek_operator.crds.listener_types import MaintenanceWindow as MaintenanceWindow
from odradek_operator.crds.mirror_types import Mirror as Mirror
from odradek_operator.crds.mirror_types import MirrorSide as MirrorSide
from odradek_operator.crds.mirror_types import MirrorSource as MirrorSource
from odradek_operator.crds.pipeline_types import Pipeline as Pipeline
from odradek_operator.crds.pipeline_types import PipelineTemplate as PipelineTemplate
from odradek_operator.crds.pipeline_types import RestartPolicy as RestartPolicy
from odradek_operator.crds.pod_types import ComputeResources as ComputeResources
from odradek_operator.crds.pod_types import PodTemplate as PodTemplate
from odradek_operator.crds.pod_types import Spread as Spread
from odradek_operator.crds.topic_types import DEFAULT_REPLICAS as DEFAULT_REPLICAS
from odradek_operator.crds.topic_types import MAX_BROKERS as MAX_BROKERS
from odradek_operator.crds.topic_types import MAX_PARTITIONS as MAX_PARTITIONS
from odradek_operator.crds.topic_types import Deletion as Deletion
from odradek_operator.crds.topic_types import Drift as Drift
from odradek_operator.crds.topic_types import Topic as Topic
from odradek_operator.crds.user_types import User as User

API_VERSION: Final = "odradek.dev/v1"
API_GROUP: Final = "odradek.dev/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of a set of manifests."""

    clusters: Mapping[str, Cluster]
    topics: Mapping[str, Topic]
    users: Mapping[str, User] = field(default_factory=dict)
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)
    mirrors: Mapping[str, Mirror] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    """Messages about parts that have no effect."""

    def topics_of(self, cluster: str) -> dict[str, Topic]:
        """Return the topics of a cluster by name."""
        return {name: topic for name, topic in self.topics.items() if topic.cluster == cluster}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The resources of one cluster."""

    cluster: Cluster
    topics: Mapping[str, Topic] = field(default_factory=dict)
    removed: Mapping[str, Topic] = field(default_factory=dict)
    """Topics whose resource was deleted, as the resource was last, until the deletion is processed."""


Resource = Cluster | Topic | User | Pipeline | Mirror


def same_spec(left: Topic | Cluster, right: Topic | Cluster) -> bool:
    """Return whether two resources are equal except for their generations."""
    return dataclasses.replace(left, generation=0) == dataclasses.replace(right, generation=0)
