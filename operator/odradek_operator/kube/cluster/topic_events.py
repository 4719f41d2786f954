"""Writes Events about changes of topics: one for each topic, or one for the cluster if many changed in one round.

The number of Events in a round is limited, so that they do not delay the statuses of hundreds of topics that one
`kubectl apply` creates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.cluster.kubernetes_events import Events

FEW: Final = 10
"""Up to this many topics with the same change in one round get an Event each."""
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedAction:
    """An action on a topic: its name, which is the reason of the Event, and why it was done."""

    topic: str
    what: str
    reason: str


async def write_topic_events(
    events: Events, cluster: Object, topics: Mapping[str, Object], done: Iterable[CompletedAction]
) -> None:
    """Write Events about what was done. `topics`: resources by name; topics without a resource get no Event."""
    by_what: dict[str, list[CompletedAction]] = defaultdict(list)
    for one in done:
        if one.topic in topics:
            by_what[one.what].append(one)
    for what, found in by_what.items():
        if len(found) > FEW:
            await events.write(cluster, what, _sentence(found))
            continue
        for one in found:
            await events.write(topics[one.topic], what, one.reason)


def _sentence(found: Iterable[CompletedAction]) -> str:
    names = sorted({one.topic for one in found})
    shown = ", ".join(names[:_NAMED])
    rest = len(names) - _NAMED
    return f"{len(names)} topics: {shown}{f' and {rest} more' if rest > 0 else ''}"
