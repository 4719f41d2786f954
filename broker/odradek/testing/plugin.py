"""pytest fixtures for users of Odradek: a broker in the test process, a real cluster and a real ZooKeeper.

pytest loads this module in every project that has `odradek` installed. Therefore all fixtures start with `odradek_`,
and large modules are imported only when a fixture is used. `odradek_broker` needs nothing else. The other fixtures need
Java 17 and the jars of PySpark.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.testing.in_process import InProcessBroker
    from odradek.testing.running_cluster import RunningCluster

_CLUSTERS: pytest.StashKey[list[RunningCluster]] = pytest.StashKey()


class ClusterFactory(Protocol):
    """Starts clusters that end with the test."""

    def __call__(
        self,
        *,
        brokers: int = 3,
        topics: Mapping[str, Mapping[str, Any]] | None = None,
        config: Mapping[str, object] | None = None,
        restart: bool = False,
        volumes: int = 1,
        racks: Sequence[str] = (),
        monitoring: bool = False,
        per_pod: int = 1,
        slots: int = 1,
    ) -> RunningCluster:
        """Start a cluster; see `RunningCluster` for the arguments."""
        ...


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the list of running clusters."""
    config.stash[_CLUSTERS] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Add the logs of the clusters that a failed test used to its report."""
    report = yield
    if report.failed:
        for cluster in item.config.stash[_CLUSTERS]:
            report.sections.append((f"cluster in {cluster.directory}", cluster.logs()))
    return report


@pytest.fixture(scope="session")
def odradek_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """One broker in this process, without Java, shared by the tests of the session: use separate topics.

    Its address for clients is `odradek_broker.bootstrap`. ZooKeeper is in memory; everything else is real.
    """
    from odradek.testing.in_process import InProcessBroker

    broker = InProcessBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture(scope="session")
def odradek_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Connect string of a real ZooKeeper that the tests of the session share. It is empty at first.

    Use a chroot (`f"{odradek_zookeeper}/{name}"`, created first) or names that no other test uses.
    """
    from odradek.testing.free_ports import free_ports
    from odradek_operator.embedded.zookeeper_process import ZooKeeperServer

    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), free_ports(1)[0], synchronous=False)
    server.start()
    try:
        server.wait_until_ready()
        yield server.connect
    finally:
        server.stop()


@pytest.fixture(scope="session")
def odradek_cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RunningCluster]:
    """Three brokers and a ZooKeeper, shared by the tests of the session: do not stop brokers, and use separate topics.

    Timeouts are long, so that a slow machine does not look like a failed broker.
    """
    patient = {"zookeeper.session.timeout.ms": 60_000, "process.hang.timeout.ms": 120_000}
    yield from _run(tmp_path_factory.mktemp("cluster"), request.config, {"config": patient})


@pytest.fixture
def odradek_cluster_factory(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ClusterFactory]:
    """Starts clusters for one test, which can stop brokers: `odradek_cluster_factory(brokers=1, topics={...})`."""
    running: list[Iterator[RunningCluster]] = []

    def start(**options: Any) -> RunningCluster:
        cluster = _run(tmp_path_factory.mktemp("cluster"), request.config, options)
        started = next(cluster)
        running.append(cluster)
        return started

    try:
        yield start
    finally:
        for cluster in reversed(running):
            next(cluster, None)


def _run(directory: Any, config: pytest.Config, options: Mapping[str, Any]) -> Iterator[RunningCluster]:
    from odradek.testing.running_cluster import RunningCluster

    cluster = RunningCluster(directory, **options)
    cluster.start()
    config.stash[_CLUSTERS].append(cluster)
    try:
        yield cluster
    finally:
        config.stash[_CLUSTERS].remove(cluster)
        cluster.close()
