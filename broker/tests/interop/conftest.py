"""The tools of each version of Apache Kafka. The jars are stored in `.interop/` between runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.running_cluster import RunningCluster
from odradek_testkit.interop.apache import Tools, jars

VERSIONS = ("3.9.1", "4.1.0")


@pytest.fixture(scope="session", params=VERSIONS)
def kafka_jars(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """Each version of Apache Kafka and its folder."""
    return request.param, jars(request.param, Path(request.config.rootpath) / ".interop")


@pytest.fixture
def tools(kafka_jars: tuple[str, Path], odradek_cluster: RunningCluster) -> Tools:
    """The tools of each version."""
    version, folder = kafka_jars
    return Tools(version, folder, odradek_cluster.bootstrap)


@pytest.fixture
def topic(odradek_cluster: RunningCluster) -> Iterator[str]:
    """A topic with three partitions and three replicas."""
    name = f"java-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": odradek_cluster.bootstrap})
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(60)
    yield name
    admin.delete_topics([name])[name].result(60)


@pytest.fixture
def group() -> str:
    """A group for one test."""
    return f"group-{uuid4().hex[:8]}"
