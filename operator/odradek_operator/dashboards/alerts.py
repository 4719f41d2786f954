"""The type of alerts, and text that alerts share. Pure.

`critical`: records cannot be written or read, or were lost. `warning`: this will happen without action today.
`info`: for information. The alerts are in `broker_alerts` and `other_alerts`; `rules` converts them into Prometheus
rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """Severity of an alert."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert; `lasting` is how long its condition must be true."""

    name: str
    severity: Severity
    query: str
    lasting: str
    summary: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertGroup:
    """Alerts on one subject; those that concern no cluster are left out of the rules of one cluster."""

    name: str
    alerts: tuple[Alert, ...]
    of_clusters: bool = True


WHICH: Final = "{{ $labels.namespace }}/{{ $labels.strimzi_io_cluster }}"
"""A cluster, in texts."""
POD: Final = "{{ $labels.namespace }}/{{ $labels.kubernetes_pod_name }}"
"""A pod, in texts."""
