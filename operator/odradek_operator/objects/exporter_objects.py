"""The Kubernetes objects of a cluster's exporter, which serves consumer lag and log sizes. Pure."""

from __future__ import annotations

from odradek_operator.crds.types import Cluster, PodTemplate
from odradek_operator.objects import listener_security as security
from odradek_operator.objects import listeners, names, parts, policies
from odradek_operator.objects.cluster_properties import zookeeper_connect
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object
from odradek_operator.objects.podspec import ImageSettings, Workload, identity, pod_template, variable

_COMPONENT = Component.EXPORTER


def exporter_objects(cluster: Cluster, *, settings: ImageSettings, operator_namespace: str) -> list[Object]:
    """Return all objects of the exporter; none if it is disabled."""
    if not cluster.monitoring.exporter:
        return []
    name = names.exporter(cluster.name)
    metrics = [parts.port(names.METRICS_PORT_NAME, names.METRICS_PORT)]
    return [
        parts.service_account(cluster, _COMPONENT, name, token=False),
        parts.service(cluster, _COMPONENT, name, metrics),
        *policies.exporter_policy(cluster, operator_namespace=operator_namespace),
        _deployment(cluster, settings),
    ]


def _deployment(cluster: Cluster, settings: ImageSettings) -> Object:
    """Return the Deployment with one pod. The old pod stops before the new one starts, because dashboards sum over
    pods."""
    config = f"{names.CERTIFICATES_FOLDER}/{names.CLIENT_CONFIG_FILE}"
    workload = Workload(
        component=_COMPONENT,
        container="exporter",
        image=settings.image("operator", settings.operator_version),
        role="exporter",
        service_account=names.exporter(cluster.name),
        environment=[
            *identity(cluster),
            variable("BOOTSTRAP_SERVERS", listeners.bootstrap(cluster)),
            variable("ZOOKEEPER_CONNECT", zookeeper_connect(cluster)),
            *([variable("ZOOKEEPER_CONFIG", config)] if cluster.ensemble_link.connects_tls else []),
            *([variable("ODRADEK_COMMAND_CONFIG", config)] if security.is_closed(cluster) else []),
        ],
        mounts=security.exporter_mounts(cluster),
        volumes=security.exporter_volumes(cluster),
        resources=cluster.monitoring.exporter_resources,
    )
    # The exporter uses the brokers' image pull secrets, because its image is in the same registry.
    user = PodTemplate(image_pull_secrets=cluster.brokers.template.image_pull_secrets)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": parts.metadata(cluster, _COMPONENT, names.exporter(cluster.name)),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 3,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": names.selector(cluster.name, _COMPONENT)},
            "template": pod_template(cluster, workload, user, settings),
        },
    }
