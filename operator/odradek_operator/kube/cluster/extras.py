"""What monitoring of one cluster is made of, from the package's own descriptions. Pure.

Enters: a Cluster. Leaves: alert rules that name the cluster only, and the dashboards. Called by the loop of a cluster.
"""

from __future__ import annotations

from odradek_operator.crds import Cluster
from odradek_operator.dashboards.files import dashboard_texts
from odradek_operator.dashboards.queries import only
from odradek_operator.dashboards.rules import rule_groups
from odradek_operator.objects.wanted import Extras


def extras_of(cluster: Cluster) -> Extras:
    """Nothing is made of what the resource does not ask for."""
    monitoring = cluster.monitoring
    return Extras(
        rule_groups=tuple(rule_groups(only(cluster.namespace, cluster.name))) if monitoring.rules else (),
        dashboards=dashboard_texts() if monitoring.dashboards else {},
    )
