"""The alert rules and dashboards of one cluster, from the package's descriptions. Pure."""

from __future__ import annotations

from odradek_operator.crds import Cluster
from odradek_operator.dashboards.files import dashboard_texts
from odradek_operator.dashboards.queries import only
from odradek_operator.dashboards.rules import rule_groups
from odradek_operator.objects.wanted import Extras


def extras_of(cluster: Cluster) -> Extras:
    """Return the rules and dashboards that the resource requests."""
    monitoring = cluster.monitoring
    return Extras(
        rule_groups=tuple(rule_groups(only(cluster.namespace, cluster.name))) if monitoring.rules else (),
        dashboards=dashboard_texts() if monitoring.dashboards else {},
    )
