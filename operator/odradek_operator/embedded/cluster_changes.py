"""Which changes of the Cluster resource an embedded cluster can follow while it runs. Pure.

`watcher` passes the resource in force and a new one, before anything is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from odradek_operator.crds import Cluster
from odradek_operator.embedded.layout import ServedListeners
from odradek_operator.errors import EmbeddedError


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedChange:
    """The Cluster to follow from now on."""

    cluster: Cluster
    notices: tuple[str, ...] = ()
    """Messages about changes that have no effect, with the reason and what to do."""


def accept(before: Cluster, after: Cluster) -> AcceptedChange:
    """Return the new Cluster without changes that are impossible while it runs.

    Raises `EmbeddedError` for a Cluster of another name or namespace.
    """
    old, new = (before.namespace, before.name), (after.namespace, after.name)
    if old != new:
        raise EmbeddedError(
            f"Cluster {before.name} of namespace {before.namespace} runs, but the manifests describe {after.name} of "
            f"{after.namespace}: start another odradek up for it, with another --data-dir and other ports."
        )
    notices = []
    if after.zookeeper.connect != before.zookeeper.connect:
        notices.append(
            f"spec.zookeeper.connect is {_shown(after.zookeeper.connect)}, but the cluster keeps "
            f"{_shown(before.zookeeper.connect)}: another ensemble has other topics, so brokers cannot change to it "
            "with their records. Set it back, or stop odradek up and start it with another --data-dir."
        )
        after = replace(after, zookeeper=before.zookeeper)
    elif after.zookeeper.config != before.zookeeper.config:
        notices.append("spec.zookeeper.config has no effect here: an embedded cluster has its own settings for it.")
    return AcceptedChange(cluster=after, notices=tuple(notices))


def check_listeners(before: ServedListeners, after: ServedListeners) -> None:
    """Raise `EmbeddedError` if a listener that is served now would close because its ports are taken."""
    closed = [listener.name for listener in before.further if listener.name in after.left_out]
    if closed:
        raise EmbeddedError("\n".join(after.left_out[name] for name in closed))


def _shown(connect: str | None) -> str:
    return "not set" if connect is None else connect
