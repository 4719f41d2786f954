"""Reads from brokers that need TLS and a login, with one file of client properties."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.client.settings import ClientSettings
from odradek.security.sasl.scram import LOGIN_MODULE
from odradek_demo.load import wait_for_topic
from odradek_testkit.security.secured_cluster import BROKER_PASSWORD, SecuredCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(odradek_zookeeper: str, tmp_path: Path) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(tmp_path, odradek_zookeeper)
    yield cluster
    cluster.stop()


def config_file(cluster: SecuredCluster, password: str, name: str) -> Path:
    """As the Secret of a User resource has it: everything inline, so executors need no file."""
    authority = (cluster.folder / "root.pem").read_text().replace("\n", "\\n")
    path = cluster.folder / name
    path.write_text(
        f"bootstrap.servers=localhost:{cluster.between[0]}\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={LOGIN_MODULE} required username="broker" password="{password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.certificates={authority}\n"
    )
    return path


def test_a_file_of_client_properties_is_enough(
    cluster: SecuredCluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add(replicas=1).start()
    with BlockingClient(ClientSettings.of(cluster.bootstrap)) as client:
        client.admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=1)])
        wait_for_topic(client, "t", timeout_seconds=60)
        with client.producer() as producer:
            # Retention would soon delete older records.
            now_ms = time.time_ns() // 1_000_000
            producer.send_many("t", [(None, b"%d" % number, now_ms) for number in range(100)], partition=0).result()
    path = config_file(cluster, BROKER_PASSWORD, "client.properties")

    def count(**options: Any) -> int:
        return spark.read.format("odradek").options(subscribe="t", **options).load().count()

    assert count(configFile=str(path)) == 100
    with pytest.raises(PySparkException, match="Authentication failed"):
        count(configFile=str(config_file(cluster, "another", "wrong.properties")))
    with pytest.raises(PySparkException, match=f"configFile {tmp_path}/none.properties cannot be read"):
        count(configFile=str(tmp_path / "none.properties"))
    same = {f"kafka.{key}": value for key, _, value in (line.partition("=") for line in path.read_text().splitlines())}
    same["kafka.ssl.truststore.certificates"] = (cluster.folder / "root.pem").read_text()
    assert count(**same) == 100, "each property as a separate option"

    stream = spark.readStream.format("odradek").options(subscribe="t", startingOffsets="earliest", configFile=str(path))
    query = (
        stream.load()
        .writeStream.format("parquet")
        .options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 100
    stored = b"".join(each.read_bytes() for each in (tmp_path / "checkpoint").rglob("*") if each.is_file())
    assert BROKER_PASSWORD.encode() not in stored, "the checkpoint has no secret"
