"""What an alert is, and the words that alerts share. Pure.

`critical`: records cannot be written or read, or were lost. `warning`: they will be, unless somebody looks today.
`info`: worth knowing. The alerts themselves stand in `broker_alerts` and `other_alerts`; `rules` makes Prometheus'
form of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """Who is told, and when."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert; `lasting` is how long its condition must hold."""

    name: str
    severity: Severity
    query: str
    lasting: str
    summary: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertGroup:
    """Alerts of one subject; those of no cluster are left out where rules are of one."""

    name: str
    alerts: tuple[Alert, ...]
    of_clusters: bool = True


WHICH: Final = "{{ $labels.namespace }}/{{ $labels.strimzi_io_cluster }}"
"""A cluster, in sentences."""
POD: Final = "{{ $labels.namespace }}/{{ $labels.kubernetes_pod_name }}"
"""A pod, in sentences."""
