"""Events about changes of topics: one for each topic, or one for the cluster if many changed at once.

A round writes only a few Events, so that the statuses of hundreds of topics in one `kubectl apply` are not delayed.
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
class Done:
    """An action on a topic, with the reason of its Event and an explanation."""

    topic: str
    what: str
    reason: str


async def tell_done(events: Events, cluster: Object, topics: Mapping[str, Object], done: Iterable[Done]) -> None:
    """Write Events about what was done. `topics`: resources by name; topics without a resource get no Event."""
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
