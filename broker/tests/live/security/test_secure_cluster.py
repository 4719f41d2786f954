"""Three brokers that use SASL_SSL among themselves: replication and a failover. Clients on the same listener."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from odradek.base.errors import AuthenticationError
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import NewTopic
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.security.sasl.scram import LOGIN_MODULE
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_testkit.security.certificates import Authority, key_pem
from odradek_testkit.security.secured_cluster import BROKER_PASSWORD, SecuredCluster

pytestmark = pytest.mark.java


@pytest.fixture
def cluster(odradek_zookeeper: str, tmp_path: Path) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(tmp_path, odradek_zookeeper)
    yield cluster
    cluster.stop()


async def in_sync(bootstrap: str) -> set[int]:
    async with Admin(bootstrap) as admin:
        topic = (await admin.describe_topics(["t"]))["t"]
        return set.intersection(*({*each.isr} for each in topic.partitions))


def test_brokers_replicate_authenticate_again_and_fail_over(cluster: SecuredCluster) -> None:
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
        assert BROKER_PASSWORD not in broker.log()
        assert "authentication failed" not in broker.log()
        assert "end of its session" not in broker.log()


def test_a_broker_tells_which_certificates_it_uses(cluster: SecuredCluster) -> None:
    (port,) = free_ports(1)
    cluster.add(replicas=1, more={"metrics.port": str(port)}).start()

    def report() -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/tls", timeout=60) as response:
            found: dict[str, Any] = json.load(response)
            return found

    def fingerprints(name: str) -> list[str]:
        certificates = x509.load_pem_x509_certificates((cluster.folder / name).read_bytes())
        return [each.fingerprint(SHA256()).hex() for each in certificates]

    of_client = {"chain": fingerprints("broker.pem"), "trusted": fingerprints("root.pem")}
    assert report() == {"listeners": {"BETWEEN": {**of_client, "trusted": []}}, "client": of_client}

    other = Authority.root("other").issue("broker")
    (cluster.folder / "new.pem").write_text(key_pem(other.key) + other.chain_pem)
    (cluster.folder / "new.pem").rename(cluster.folder / "broker.pem")
    wait_until(lambda: report()["listeners"]["BETWEEN"]["chain"] == fingerprints("broker.pem"), what="the new file")
    assert report()["client"]["chain"] == fingerprints("broker.pem")


def test_clients_and_commands_use_the_same_properties(cluster: SecuredCluster) -> None:
    cluster.add(replicas=1).start()
    properties = {
        "bootstrap.servers": f"localhost:{cluster.between[0]}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{LOGIN_MODULE} required username="broker" password="{BROKER_PASSWORD}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{cluster.folder}/root.pem",
    }
    path = cluster.folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    assert odradek(path, "topic", "create", "t", "--partitions", "1").stdout == "Topic t was created.\n"
    assert odradek(path, "produce", "t", stdin="one\ntwo\n").returncode == 0
    assert odradek(path, "consume", "t", "--from-beginning", "--until-end").stdout == "one\ntwo\n"

    path.write_text(path.read_text().replace(BROKER_PASSWORD, "another"))
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

    wrong = {**properties, "sasl.jaas.config": properties["sasl.jaas.config"].replace(BROKER_PASSWORD, "another")}
    asyncio.run(fail(ClientSettings.parse(wrong)[0]))
    del properties["ssl.truststore.type"], properties["ssl.truststore.location"]
    asyncio.run(fail(ClientSettings.parse(properties)[0]))


def odradek(config: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli.main", *arguments, "--command-config", str(config)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=90)
