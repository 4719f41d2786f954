"""Our broker serves the requests of Apache Kafka 3.9 in ZooKeeper mode, or the guide says why not.

`BrokerApiVersionsCommand` asks a broker of Apache Kafka and our brokers: versions must be the same. The guide lists the
key, name, versions and reason of every request that is not served, and of the versions that only our brokers serve. The
test fails for a missing entry, and for an entry that is not needed. Requests of consumer groups are the exception: only
ours serve them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from kazoo.client import KazooClient

from odradek.testing.running_cluster import RunningCluster
from odradek_testkit.interop.apache import ApacheBroker, Tools, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "3.9.1"
API_VERSIONS: Final = "kafka.admin.BrokerApiVersionsCommand"
GUIDE: Final = "docs/migrating-from-kafka.md"
HEADING: Final = "## Requests that are not served"
NEWER: Final = "Odradek serves some versions that Apache Kafka 3.9 does not have."
"""Beginning of the text before the second table of the section."""
ENTRY: Final = re.compile(r"^\t(\w+)\((\d+)\): (?!UNSUPPORTED)(\d+)(?: to (\d+))? \[", re.MULTILINE)
ROW: Final = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)(?: to (\d+))? \| (.*?) \|$", re.MULTILINE)


class Versions(NamedTuple):
    """The name of a request and the range of its versions."""

    name: str
    oldest: int
    newest: int


ONLY_OURS: Final = {68: Versions("ConsumerGroupHeartbeat", 0, 1), 69: Versions("ConsumerGroupDescribe", 0, 1)}
"""Requests of consumer groups (KIP-848), in the versions of Kafka 4.1. A broker of Kafka 3.9 in ZooKeeper mode lists
version 0 and does not serve it."""


def served(tools: Tools) -> dict[int, Versions]:
    """Return the APIs that the brokers of a cluster serve, by API key. All of them must serve the same APIs."""
    first, *others = [
        {int(key): Versions(name, int(low), int(high or low)) for name, key, low, high in ENTRY.findall(broker)}
        for broker in tools.run(API_VERSIONS).split(" -> (")[1:]
    ]
    assert all(each == first for each in others)
    return first


@pytest.fixture(scope="module")
def kafka(pytestconfig: pytest.Config) -> Path:
    """The jars of the last version of Apache Kafka that works with ZooKeeper."""
    return jars(VERSION, Path(pytestconfig.rootpath) / ".interop")


@pytest.fixture(scope="module")
def served_by_kafka(
    kafka: Path, odradek_zookeeper: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[int, Versions]]:
    """The APIs that a broker of Apache Kafka serves."""
    client = KazooClient(hosts=odradek_zookeeper)
    client.start()
    client.ensure_path("/api-versions")
    client.stop()
    client.close()
    broker = ApacheBroker(
        kafka,
        tmp_path_factory.mktemp("apache"),
        broker_id=0,
        zookeeper=f"{odradek_zookeeper}/api-versions",
        properties={"offsets.topic.replication.factor": "1"},
        heap="384m",
    )
    broker.start()
    try:
        yield served(Tools(VERSION, kafka, f"127.0.0.1:{broker.port}"))
    finally:
        broker.stop()


def section_of(config: pytest.Config) -> tuple[str, str]:
    """Return the text of the section before and after the beginning of its second table."""
    _, _, section = (Path(config.rootpath) / GUIDE).read_text(encoding="utf-8").partition(f"{HEADING}\n")
    first, _, second = section.partition("\n## ")[0].partition(NEWER)
    return first, second


def rows_of(text: str) -> Mapping[int, tuple[Versions, str]]:
    """Return the rows of a table: the request and the reason."""
    rows = ROW.findall(text)
    return {int(key): (Versions(name, int(low), int(high or low)), why.strip()) for key, name, low, high, why in rows}


@pytest.fixture(scope="module")
def not_served(pytestconfig: pytest.Config) -> Mapping[int, tuple[Versions, str]]:
    """Return the rows of the table of requests that are not served."""
    return rows_of(section_of(pytestconfig)[0])


@pytest.fixture(scope="module")
def newer(pytestconfig: pytest.Config) -> Mapping[int, tuple[Versions, str]]:
    """Return the rows of the table of versions that only our brokers serve."""
    return rows_of(section_of(pytestconfig)[1])


def test_requests_that_kafka_serves_are_served_or_listed_with_a_reason(
    served_by_kafka: Mapping[int, Versions],
    not_served: Mapping[int, tuple[Versions, str]],
    newer: Mapping[int, tuple[Versions, str]],
    kafka: Path,
    odradek_cluster: RunningCluster,
) -> None:
    served_by_us = served(Tools(VERSION, kafka, odradek_cluster.bootstrap))
    assert not served_by_us.keys() & not_served.keys(), "the guide lists a request that is served"
    assert {key: served_by_us[key] for key in ONLY_OURS} == ONLY_OURS
    others = {key: versions for key, versions in served_by_us.items() if key not in ONLY_OURS}
    expected = {key: versions for key, versions in served_by_kafka.items() if key not in ONLY_OURS}
    for key, (versions, _) in newer.items():
        assert others[key] == (versions.name, expected[key].oldest, versions.newest)
        assert versions.oldest == expected[key].newest + 1, "the guide lists a version that Apache Kafka serves"
        others[key] = expected[key]
    assert others | {key: versions for key, (versions, _) in not_served.items()} == expected
    assert all(reason for _, reason in (*not_served.values(), *newer.values()))
