"""Alerts on mirrors; see `broker_alerts`. Pure."""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.alerts import Alert, AlertGroup, Severity

_WHICH: Final = "{{ $labels.namespace }}: mirror {{ $labels.mirror }}, source {{ $labels.source }}"

GROUP: Final = AlertGroup(
    name="odradek.mirrors",
    of_clusters=False,
    alerts=(
        Alert(
            name="MirrorNotReady",
            severity=Severity.WARNING,
            query="max by (mirror_namespace, mirror) (odradek_mirror_ready) == 0",
            duration="15m",
            summary="{{ $labels.mirror_namespace }}: mirror {{ $labels.mirror }} is not ready",
            description="Its status has the reason: kubectl describe mirror.",
        ),
        Alert(
            name="MirrorLagGrows",
            severity=Severity.WARNING,
            query=f"({queries.MIRROR_LAG} > 1000) and deriv(({queries.MIRROR_LAG})[15m:1m]) >= 0",
            duration="15m",
            summary=f"{_WHICH}: {{{{ $value }}}} records are not copied",
            description="The lag has not decreased for 15 minutes.",
        ),
        Alert(
            name="MirrorPartitionStopped",
            severity=Severity.CRITICAL,
            query=f"{queries.MIRROR_FAILED} > 0",
            duration="1m",
            summary=f"{_WHICH}: {{{{ $value }}}} partitions have stopped",
            description="Their records are not copied until the cause is removed.",
        ),
        Alert(
            name="MirrorSourceUnreachable",
            severity=Severity.WARNING,
            query=f"max by ({queries.MIRROR_SOURCE}) (odradek_mirror_source_connected) == 0",
            duration="10m",
            summary=f"{_WHICH}: no pod has reached the source",
            description="Nothing is copied from this source.",
        ),
    ),
)
