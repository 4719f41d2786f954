"""A cluster for the client's live tests: Odradek's own, or the one that ODRADEK_CLIENT_BOOTSTRAP names."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from odradek.client.admin import Admin
from odradek.client.models import NewTopic
from odradek.client.settings import ClientSettings

PARTITIONS = 3


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where the cluster is reached."""
    other = os.environ.get("ODRADEK_CLIENT_BOOTSTRAP")
    return other or str(request.getfixturevalue("odradek_cluster").bootstrap)


@pytest.fixture
def settings(bootstrap: str) -> ClientSettings:
    """Settings that wait for nothing without need, and long enough for a machine that is busy with other things."""
    return ClientSettings.of(
        bootstrap,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
        heartbeat_interval_ms=100,
        session_timeout_ms=60_000,
        default_api_timeout_ms=60_000,
        max_block_ms=60_000,
    )


@pytest.fixture
async def topic(settings: ClientSettings) -> AsyncIterator[str]:
    """A topic of three partitions for one test; tests choose timestamps, so nothing in it may be too old."""
    name = f"client-{uuid4().hex[:8]}"
    async with Admin(settings) as admin:
        await admin.create_topics(
            [NewTopic(name=name, partitions=PARTITIONS, replication_factor=1, configs=(("retention.ms", "-1"),))]
        )
        yield name
        await admin.delete_topics([name])
