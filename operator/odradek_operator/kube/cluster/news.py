"""Events about what was done to topics: one on each, or one on the cluster where many were changed at once.

Enters: actions that were carried out, by topic. Leaves: Events, never more than a few in a round: two hundred topics by
one `kubectl apply` must not wait for two hundred Events before their statuses are written. Called by the loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.cluster.kubernetes_events import Events

FEW: Final = 10
"""So many topics with the same news in one round have an Event each."""
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An action on a topic, by the word of an Event's reason, and why it was taken."""

    topic: str
    what: str
    reason: str


async def tell_done(events: Events, cluster: Object, topics: Mapping[str, Object], done: Iterable[Done]) -> None:
    """Tell what was done. `topics` are resources by name; of a topic without one nothing is told."""
    by_what: dict[str, list[Done]] = defaultdict(list)
    for one in done:
        if one.topic in topics:
            by_what[one.what].append(one)
    for what, found in by_what.items():
        if len(found) > FEW:
            await events.tell(cluster, what, _sentence(found))
            continue
        for one in found:
            await events.tell(topics[one.topic], what, one.reason)


def _sentence(found: Iterable[Done]) -> str:
    names = sorted({one.topic for one in found})
    shown = ", ".join(names[:_NAMED])
    rest = len(names) - _NAMED
    return f"{len(names)} topics: {shown}{f' and {rest} more' if rest > 0 else ''}"
