"""A cluster for the live tests of the client: an Odradek cluster, or the one that ODRADEK_CLIENT_BOOTSTRAP names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.client.metadata import view_of
from odradek.client.models import NewTopic
from odradek.client.settings import ClientSettings
from odradek.protocol.messages.cluster import MetadataResponse

PARTITIONS = 3


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Bootstrap addresses of the cluster."""
    other = os.environ.get("ODRADEK_CLIENT_BOOTSTRAP")
    return other or str(request.getfixturevalue("odradek_cluster").bootstrap)


@pytest.fixture
def settings(bootstrap: str) -> ClientSettings:
    """Settings with short pauses and with timeouts that are long enough for a busy machine."""
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
    """A topic with three partitions for one test. It keeps records with old timestamps, which tests use."""
    name = f"client-{uuid4().hex[:8]}"
    async with Admin(settings) as admin:
        await admin.create_topics(
            [NewTopic(name=name, partitions=PARTITIONS, replication_factor=1, configs=(("retention.ms", "-1"),))]
        )
        await _until_all_brokers_know(settings, name)
        yield name
        await admin.delete_topics([name])


async def _until_all_brokers_know(settings: ClientSettings, topic: str) -> None:
    """Wait until each broker has the topic in its metadata. Tests ask any broker, and some requests do not retry."""
    wanted = {
        "topics": [{"name": topic, "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    async with Cluster(settings) as cluster, asyncio.timeout(60):
        for node in cluster.view.nodes:
            while view_of(await cluster.ask(node, MetadataResponse, wanted)).topics[topic].error_code:
                pass
