"""Fixtures for comparisons with Spark's own source: one Spark with both, and a broker of each kind.

Adds this folder to `sys.path`, because `parity_data` is not installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from odradek.client.blocking.client import BlockingClient
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import KafkaProcess, KraftBroker, jars, spark_connector_jars
from pyspark_odradek import register

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

HERE: Final = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.append(HERE)

KAFKA_VERSION: Final = "3.9.1"
PROPERTIES: Final = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "1000",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="session")
def cache(request: pytest.FixtureRequest) -> Path:
    """The folder with downloaded jars."""
    return Path(request.config.rootpath) / ".interop"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[SparkSession]:
    """One Spark session for all tests, with Spark's own connector."""
    scratch = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, spark_connector_jars(cache))))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.network.timeout", "600s")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session", params=[pytest.param("kafka", marks=pytest.mark.daily), "odradek"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> Iterator[KafkaProcess | OdradekBroker]:
    """A broker of each kind."""
    directory = tmp_path_factory.mktemp(request.param)
    broker: KafkaProcess | OdradekBroker
    if request.param == "kafka":
        broker = KraftBroker(jars(KAFKA_VERSION, cache), directory, properties=PROPERTIES, heap="512m")
    else:
        ensemble = f"{request.getfixturevalue('odradek_zookeeper')}/spark-{uuid4().hex[:8]}"
        broker = OdradekBroker(directory, zookeeper=ensemble, properties=PROPERTIES)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def bootstrap(broker: KafkaProcess | OdradekBroker) -> str:
    """The address of the broker."""
    return f"127.0.0.1:{broker.port}"


@pytest.fixture(scope="session")
def client(bootstrap: str) -> Iterator[BlockingClient]:
    """A client of the broker."""
    with BlockingClient(bootstrap) as made:
        yield made
