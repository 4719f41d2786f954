"""Settings of brokers and topics that change while a cluster runs and are still effective after a restart."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from odradek.base.errors import InvalidRequestError
from odradek.client.blocking.blocking_admin import BlockingAdmin
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import ConfigChange, ConfigResource
from odradek.testing.free_ports import free_ports
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

SECONDS = 90
BROKERS = (0, 1)
SET, DELETE = 0, 1
LARGE = 50_000
ALL = ConfigResource.broker()


def set_to(name: str, value: str) -> ConfigChange:
    """Set a setting."""
    return ConfigChange(name=name, operation=SET, value=value)


def delete(name: str) -> ConfigChange:
    """Delete a setting."""
    return ConfigChange(name=name, operation=DELETE, value=None)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Two brokers with a short retention check interval."""
    cluster = RunningCluster(
        tmp_path_factory.mktemp("cluster"),
        brokers=len(BROKERS),
        config={"log.initial.task.delay.ms": 500, "log.retention.check.interval.ms": 500, "log.retention.hours": 20},
    )
    cluster.start()
    yield cluster
    cluster.close()


@pytest.fixture
def admin(cluster: RunningCluster) -> Iterator[BlockingAdmin]:
    """An admin client. The defaults for all brokers that a test sets are deleted after it."""
    with BlockingClient(cluster.bootstrap) as client:
        admin = client.admin
        yield admin
        names = admin.describe_configs([ALL])[ALL]
        admin.incremental_alter_configs({ALL: [delete(name) for name in names]})


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    """A topic with a partition on each broker."""
    name = f"dynamic-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    placed = NewTopic(name, len(BROKERS), replica_assignment=[[number] for number in BROKERS])
    admin.create_topics([placed])[name].result(SECONDS)
    return name


class Client:
    """Produces to each partition and reads what is in its log."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        self._settings = {"bootstrap.servers": cluster.bootstrap}
        self._topic = topic

    def produce(self, size: int) -> list[int | None]:
        """Produce a record of this size to each partition. Return the errors; None is success."""
        producer = confluent_kafka.Producer({**self._settings, "message.timeout.ms": SECONDS * 1000})
        outcomes: dict[int, int | None] = {}
        for partition in BROKERS:
            producer.produce(
                self._topic,
                bytes(size),
                partition=partition,
                on_delivery=lambda error, message: outcomes.update(
                    {message.partition(): None if error is None else error.code()}
                ),
            )
        assert producer.flush(SECONDS) == 0
        return [outcomes[partition] for partition in BROKERS]

    def kept(self) -> list[int]:
        """Return the number of records of each partition."""
        consumer = confluent_kafka.Consumer({**self._settings, "group.id": "none"})
        try:
            bounds = [
                consumer.get_watermark_offsets(confluent_kafka.TopicPartition(self._topic, number), timeout=SECONDS)
                for number in BROKERS
            ]
        finally:
            consumer.close()
        return [end - start for start, end in bounds]


def sources(admin: BlockingAdmin, key: str) -> list[tuple[str | None, int]]:
    """Return value and source of a setting from each broker."""
    resources = [ConfigResource.broker(number) for number in BROKERS]
    found = admin.describe_configs(resources, keys=[key])
    return [(found[resource][key].value, found[resource][key].source) for resource in resources]


TOO_LARGE = confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE


def test_defaults_of_all_brokers_hold_at_once_and_after_a_restart(
    cluster: RunningCluster, admin: BlockingAdmin, topic: str
) -> None:
    client = Client(cluster, topic)
    assert client.produce(LARGE) == [None, None]
    assert client.kept() == [1, 1]
    changes = [set_to("log.retention.ms", "1"), set_to("message.max.bytes", "10000")]
    admin.incremental_alter_configs({ALL: changes})
    wait_until(lambda: client.produce(LARGE) == [TOO_LARGE] * 2, what="the smaller bound on both brokers")
    wait_until(lambda: client.kept() == [0, 0], what="the shorter retention on both brokers")
    assert sources(admin, "message.max.bytes") == [("10000", 3)] * 2

    cluster.stop_broker(1)
    cluster.start_broker(1)
    assert sources(admin, "log.retention.ms") == [("1", 3)] * 2
    assert client.produce(LARGE) == [TOO_LARGE] * 2
    assert client.produce(10) == [None, None]

    admin.incremental_alter_configs({ALL: [delete("message.max.bytes")]})
    wait_until(lambda: client.produce(LARGE) == [None, None], what="the bound of the start")


def test_one_brokers_own_setting_wins(cluster: RunningCluster, admin: BlockingAdmin, topic: str) -> None:
    client, own = Client(cluster, topic), ConfigResource.broker(0)
    admin.incremental_alter_configs({ALL: [set_to("message.max.bytes", "10000")]})
    admin.incremental_alter_configs({own: [set_to("message.max.bytes", "100000")]})
    try:
        wait_until(lambda: client.produce(LARGE) == [None, TOO_LARGE], what="both bounds")
        assert sources(admin, "message.max.bytes") == [("100000", 2), ("10000", 3)]
        with pytest.raises(InvalidRequestError, match="restart"):
            admin.incremental_alter_configs({own: [set_to("num.partitions", "7")]})
    finally:
        admin.incremental_alter_configs({own: [delete("message.max.bytes")]})


@pytest.mark.parametrize("version", [1, 2])
def test_settings_that_old_tools_write_to_zookeeper_are_applied(
    cluster: RunningCluster, topic: str, version: int
) -> None:
    """Do the same as `kafka-configs --zookeeper` of old releases: write the znode, then a notification in the old
    format."""
    notice = {
        1: {"version": 1, "entity_type": "topics", "entity_name": topic},
        2: {"version": 2, "entity_path": f"topics/{topic}"},
    }[version]
    content = json.dumps({"version": 1, "config": {"max.message.bytes": "10000"}}).encode()
    client = Client(cluster, topic)
    assert client.produce(LARGE) == [None, None]
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(SECONDS)
    try:
        path = f"/config/topics/{topic}"
        zookeeper.ensure_path(path)
        zookeeper.set(path, content)
        zookeeper.create("/config/changes/config_change_", json.dumps(notice).encode(), sequence=True)
    finally:
        zookeeper.stop()
        zookeeper.close()
    wait_until(lambda: client.produce(LARGE) == [TOO_LARGE] * 2, what="the bound that was written into ZooKeeper")


LISTENERS = ("listeners", "advertised.listeners", "listener.security.protocol.map")


def with_listener(admin: BlockingAdmin, broker: ConfigResource, port: int) -> dict[str, str]:
    """Return the broker's settings of listeners, with one more listener."""
    found = admin.describe_configs([broker], keys=list(LISTENERS))[broker]
    added = (f"OUTER://127.0.0.1:{port}", f"OUTER://127.0.0.1:{port}", "OUTER:PLAINTEXT")
    given = {name: found[name].value or found["listeners"].value for name in LISTENERS}
    return {name: f"{given[name]},{more}" for name, more in zip(LISTENERS, added, strict=True)}


def test_listeners_are_added_and_removed(cluster: RunningCluster, admin: BlockingAdmin) -> None:
    """Change listeners by a request and by a notification of another tool. The registration and the metadata change."""
    broker = ConfigResource.broker(1)
    conflict = with_listener(admin, broker, cluster.address(0)[1])
    with pytest.raises(InvalidRequestError, match="another process listens there"):
        admin.incremental_alter_configs({broker: [set_to(*each) for each in conflict.items()]})

    port = free_ports(1)[0]
    outer = with_listener(admin, broker, port)
    admin.incremental_alter_configs({broker: [set_to(*each) for each in outer.items()]})

    def described() -> dict[int, int]:
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        return {each.id: each.port for each in client.list_topics(timeout=SECONDS).brokers.values()}

    wait_until(lambda: described() == {1: port}, what="metadata with the new listener on itself")
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(SECONDS)
    try:
        assert f"OUTER://127.0.0.1:{port}" in json.loads(zookeeper.get("/brokers/ids/1")[0])["endpoints"]
        zookeeper.set("/config/brokers/1", json.dumps({"version": 1, "config": {}}).encode())
        notice = json.dumps({"version": 2, "entity_path": "brokers/1"}).encode()
        zookeeper.create("/config/changes/config_change_", notice, sequence=True)

        def endpoints() -> list[str]:
            return list(json.loads(zookeeper.get("/brokers/ids/1")[0])["endpoints"])

        wait_until(lambda: len(endpoints()) == 1, what="the registration without the listener")
    finally:
        zookeeper.stop()
        zookeeper.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS).close()
    with pytest.raises(InvalidRequestError, match="must keep"):
        replaced = ("OTHER://127.0.0.1:0", "OTHER://127.0.0.1:7", "OTHER:PLAINTEXT")
        admin.incremental_alter_configs({broker: list(map(set_to, LISTENERS, replaced))})
