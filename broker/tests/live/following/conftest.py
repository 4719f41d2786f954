"""Two real clusters in this process, and a client of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from odradek.client.cluster_client import Cluster
from odradek.testing.in_process import InProcessBroker
from odradek_testkit.clients.mirrored_pair import MirroredPair, mirror_config

PROPERTIES = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.cleaner.backoff.ms": 100,
}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The addresses of the source and of the target."""
    running = [InProcessBroker(tmp_path / name, PROPERTIES) for name in ("source", "target")]
    try:
        for broker in running:
            broker.start()
        yield running[0].bootstrap, running[1].bootstrap
    finally:
        for broker in running:
            broker.close()


@pytest.fixture
async def pair(brokers: tuple[str, str]) -> AsyncIterator[MirroredPair]:
    """The clusters with clients."""
    config = mirror_config(*brokers)
    async with Cluster(brokers[0]) as source, Cluster(brokers[1]) as target:
        yield MirroredPair(config, source, target)
