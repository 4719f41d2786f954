"""The type of alerts, and templates that their texts share. Pure.

The modules whose names end with `_alerts` have the alerts; `rules` converts them into Prometheus rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """Severity of an alert."""

    CRITICAL = "critical"
    """Records cannot be written or read, or were lost."""
    WARNING = "warning"
    """This may happen if nobody acts today."""
    INFO = "info"
    """No action is necessary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. It fires if `query` has returned results for `duration`, a duration as in Prometheus."""

    name: str
    severity: Severity
    query: str
    duration: str
    summary: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertGroup:
    """Alerts on one subject. If `of_clusters` is false, the rules for a single cluster do not include them."""

    name: str
    alerts: tuple[Alert, ...]
    of_clusters: bool = True


WHICH: Final = "{{ $labels.namespace }}/{{ $labels.strimzi_io_cluster }}"
"""Template of the namespace and name of a cluster."""
POD: Final = "{{ $labels.namespace }}/{{ $labels.kubernetes_pod_name }}"
"""Template of the namespace and name of a pod."""
BROKER: Final = f"{POD} ({{{{ $labels.container }}}})"
"""Template of a broker: its pod, and its container in the pod."""
