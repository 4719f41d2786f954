"""A fixture with the wanted objects by kind and name, for tests of single objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from odradek_operator.crds.types import Cluster
from odradek_operator.objects.names import Component
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import Extras, wanted_objects

Objects = dict[tuple[str, str], dict[str, Any]]
Build = Callable[..., Objects]


@pytest.fixture
def build() -> Build:
    """Return a function that builds all objects of a cluster and returns their bodies by kind and name."""

    def built(
        cluster: Cluster,
        *,
        broker_count: int | None = None,
        extras: Extras | None = None,
        spread: Iterable[Component] = (),
    ) -> Objects:
        count = cluster.brokers.replicas if broker_count is None else broker_count
        wanted = wanted_objects(
            cluster,
            settings=ImageSettings(),
            broker_count=count,
            operator_namespace="odradek-system",
            extras=extras,
            spread=frozenset(spread),
        )
        return {(item.kind, item.name): item.body for item in wanted}

    return built
