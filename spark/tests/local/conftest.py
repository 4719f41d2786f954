"""Fixtures with a local Spark and a client. The cluster is a fixture of `odradek.testing`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.client.blocking.client import BlockingClient
from odradek.client.settings import ClientSettings
from odradek.testing.running_cluster import RunningCluster

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for all tests, because it takes seconds to start."""
    scratch: Path = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        # The defaults of 15 s and 2 min are too short for a busy machine.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.network.timeout", "600s")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def client(odradek_cluster: RunningCluster) -> Iterator[BlockingClient]:
    """A client that is connected to the cluster of the test session."""
    with BlockingClient(ClientSettings.of(odradek_cluster.bootstrap, linger_ms=5)) as made:
        yield made
