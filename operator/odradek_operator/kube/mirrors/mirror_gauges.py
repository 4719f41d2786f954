"""Metrics of the operator about Mirrors: whether they are ready. The pods of a Mirror serve its figures themselves.

The loop of a Mirror sets them in each round, and removes them when it ends, so that only the operator that serves a
namespace has its series.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Gauge

_LABELS: Final = ("mirror_namespace", "mirror")
"""`namespace` is that of the operator, because a scrape adds the namespace of the scraped pod."""


class MirrorGauges:
    """The series of all Mirrors of an operator."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics. There is no series before the first `show`."""
        what = "0 if the condition Ready is False, else 1"
        self._ready = Gauge("odradek_mirror_ready", what, _LABELS, registry=registry)

    def show(self, namespace: str, name: str, *, is_ready: bool) -> None:
        """Set the series of a Mirror."""
        self._ready.labels(namespace, name).set(is_ready)

    def forget(self, namespace: str, name: str) -> None:
        """Remove the series of a Mirror."""
        self._ready.remove_by_labels(dict(zip(_LABELS, (namespace, name), strict=True)))
