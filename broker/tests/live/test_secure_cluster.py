"""Three brokers that use SASL_SSL among themselves: replication and a failover. Clients on the same listener."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.base.errors import AuthenticationError
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import NewTopic
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.security.sasl.credentials import SHA_512, derive
from odradek.security.sasl.scram import LOGIN_MODULE
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek.zk.layout import encode_config
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.security.certificates import Authority, key_pem, pem

pytestmark = pytest.mark.java

PASSWORD = "of the brokers"
REAUTH_MS = 3_000


class Cluster:
    """Brokers with a PLAINTEXT listener for clients and one with SASL_SSL for brokers."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.folder = folder
        self.root = f"{zookeeper}/{uuid4().hex}"
        authority = Authority.root("root")
        issued = authority.issue("broker")
        (folder / "root.pem").write_text(pem(authority.certificate))
        (folder / "broker.pem").write_text(key_pem(issued.key) + issued.chain_pem)
        client = KazooClient(hosts=zookeeper)
        client.start()
        try:
            path = self.root.removeprefix(zookeeper)
            value = encode_config({SHA_512.name: derive(PASSWORD, SHA_512).to_text()})
            client.create(f"{path}/config/users/broker", value, makepath=True)
        finally:
            client.stop()
            client.close()
        self.brokers: list[OdradekBroker] = []
        self.between: list[int] = []

    def add(self, replicas: int = 3) -> OdradekBroker:
        port, between = free_ports(2)
        properties = {
            "listeners": f"CLIENTS://localhost:{port},BETWEEN://localhost:{between}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BETWEEN:SASL_SSL",
            "inter.broker.listener.name": "BETWEEN",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.between.scram-sha-512.sasl.jaas.config": (
                f'{LOGIN_MODULE} required username="broker" password="{PASSWORD}";'
            ),
            "listener.name.between.ssl.keystore.type": "PEM",
            "listener.name.between.ssl.keystore.location": f"{self.folder}/broker.pem",
            "listener.name.between.ssl.truststore.type": "PEM",
            "listener.name.between.ssl.truststore.location": f"{self.folder}/root.pem",
            "connections.max.reauth.ms": str(REAUTH_MS),
            "default.replication.factor": str(replicas),
            "offsets.topic.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            "zookeeper.session.timeout.ms": "6000",
        }
        number = len(self.brokers) + 1
        broker = OdradekBroker(
            self.folder / str(number), zookeeper=self.root, properties=properties, broker_id=number, port=port
        )
        self.brokers.append(broker)
        self.between.append(between)
        return broker

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{broker.port}" for broker in self.brokers)

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop(kill=True)


@pytest.fixture
def cluster(odradek_zookeeper: str, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, odradek_zookeeper)
    yield cluster
    cluster.stop()


async def in_sync(bootstrap: str) -> set[int]:
    async with Admin(bootstrap) as admin:
        topic = (await admin.describe_topics(["t"]))["t"]
        return set.intersection(*({*each.isr} for each in topic.partitions))


def test_brokers_replicate_authenticate_again_and_fail_over(cluster: Cluster) -> None:
    for _ in range(3):
        cluster.add().start()

    async def produce(first: int) -> None:
        async with Producer(ClientSettings.of(cluster.bootstrap)) as producer:
            for number in range(first, first + 100):
                await producer.send_and_wait("t", b"%d" % number)

    async def create() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=3, replication_factor=3)])

    asyncio.run(create())
    asyncio.run(produce(0))
    wait_until(lambda: asyncio.run(in_sync(cluster.bootstrap)) == {1, 2, 3}, what="all replicas")
    cluster.brokers[0].stop(kill=True)
    wait_until(lambda: asyncio.run(in_sync(cluster.bootstrap)) == {2, 3}, what="the failover")
    asyncio.run(produce(100))
    cluster.brokers[0].start()
    wait_until(lambda: asyncio.run(in_sync(cluster.bootstrap)) == {1, 2, 3}, what="the return of the broker")
    for broker in cluster.brokers:
        assert PASSWORD not in broker.log()
        assert "authentication failed" not in broker.log()
        assert "end of its session" not in broker.log()


def test_clients_and_commands_use_the_same_properties(cluster: Cluster) -> None:
    cluster.add(replicas=1).start()
    properties = {
        "bootstrap.servers": f"localhost:{cluster.between[0]}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{LOGIN_MODULE} required username="broker" password="{PASSWORD}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{cluster.folder}/root.pem",
    }
    path = cluster.folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    assert odradek(path, "topic", "create", "t", "--partitions", "1").stdout == "Topic t was created.\n"
    assert odradek(path, "produce", "t", stdin="one\ntwo\n").returncode == 0
    assert odradek(path, "consume", "t", "--from-beginning", "--until-end").stdout == "one\ntwo\n"

    path.write_text(path.read_text().replace(PASSWORD, "another"))
    refused = odradek(path, "topic", "list")
    assert refused.returncode == 1
    assert f"localhost:{cluster.between[0]} refused the client: Authentication failed" in refused.stderr
    assert "--command-config" in refused.stderr

    async def fail(settings: ClientSettings) -> None:
        with pytest.raises(AuthenticationError):
            async with Admin(settings):
                pass
        with pytest.raises(AuthenticationError):
            async with Producer(settings):
                pass
        with pytest.raises(AuthenticationError):
            async with Consumer(settings, "t", group_id="g"):
                pass

    wrong = {**properties, "sasl.jaas.config": properties["sasl.jaas.config"].replace(PASSWORD, "another")}
    asyncio.run(fail(ClientSettings.parse(wrong)[0]))
    del properties["ssl.truststore.type"], properties["ssl.truststore.location"]
    asyncio.run(fail(ClientSettings.parse(properties)[0]))


def odradek(config: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli.main", *arguments, "--command-config", str(config)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=90)
