"""The metrics of clients for prometheus_client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_PREFIX: Final = "odradek_client_"
_TOTAL: Final = "-total"


class Measured(Protocol):
    """A client with metrics."""

    def metrics(self) -> dict[str, float]:
        """Return the metrics by name."""
        ...


class ClientCollector(Collector):
    """Exports the metrics of producers, consumers and admin clients, asynchronous or blocking.

    `prometheus_client.REGISTRY.register(ClientCollector({"orders": producer}))` exports the metric `record-send-total`
    as `odradek_client_record_send_total{client="orders"}`. Metrics without a value are left out.
    """

    def __init__(self, clients: Mapping[str, Measured]) -> None:
        """`clients` has the values of the label `client`. It can be changed later."""
        self._clients: Final = clients

    def collect(self) -> Iterable[Metric]:
        """Return a metric family for each name."""
        families: dict[str, Metric] = {}
        for client, measured in list(self._clients.items()):
            for name, value in measured.metrics().items():
                if not math.isnan(value):
                    family = families.setdefault(name, _family(name))
                    family.add_metric([client], value)  # type: ignore[attr-defined]
        return families.values()


def _family(name: str) -> Metric:
    exported = _PREFIX + name.removesuffix(_TOTAL).replace("-", "_")
    documentation = f"The metric {name} of the clients"
    cls = CounterMetricFamily if name.endswith(_TOTAL) else GaugeMetricFamily
    return cls(exported, documentation, labels=["client"])
