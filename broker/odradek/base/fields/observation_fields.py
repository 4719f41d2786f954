"""The settings of a broker's metrics and probes. Kafka has none of them. `broker_fields` includes them."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.base.setting_definitions import Update, boolean, integer, long, text


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationFields:
    """Settings of metrics and probes. Each attribute is the property of the same name with dots."""

    metrics_host: str = text("0.0.0.0", "Address to listen on for /metrics, /healthz and /readyz.")
    metrics_port: int = integer(-1, "Port of /metrics, /healthz and /readyz; -1 = none.", low=-1, high=65_535)
    group_lag_metrics_enable: bool = boolean(
        False,
        "Provide the lag of the groups that this broker coordinates at /metrics. Do not combine it with an exporter of "
        "consumer lag, which has series of the same names.",
        dynamic=Update.CLUSTER_WIDE,
    )
    group_lag_refresh_interval_ms: int = long(
        30_000, "Time between two measurements of the lag of groups.", low=1000, dynamic=Update.CLUSTER_WIDE
    )
    group_lag_metrics_max_partitions: int = integer(
        10_000,
        "Maximum number of committed offsets whose lag a broker provides; of further groups, none is.",
        low=1,
        dynamic=Update.CLUSTER_WIDE,
    )
