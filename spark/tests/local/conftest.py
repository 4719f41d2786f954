"""Fixtures with a local Spark and a client. The cluster is a fixture of `odradek.testing`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odradek.client.blocking.client import BlockingClient
from odradek.client.settings import ClientSettings
from odradek.testing.running_cluster import RunningCluster
from pyspark_odradek import register

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
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def client(odradek_cluster: RunningCluster) -> Iterator[BlockingClient]:
    """A client that is connected to the cluster of the test session."""
    with BlockingClient(ClientSettings.of(odradek_cluster.bootstrap, linger_ms=5)) as made:
        yield made


RunJob = Callable[..., dict[str, Any]]
TOO_BUSY = "Python worker failed to connect back"
"""The error if the planning process of a streaming source does not start within ten seconds, which happens on a busy
machine. Spark has no setting for this limit. No row has been read by then, so the job is started again."""


@pytest.fixture
def run_job(spark: SparkSession, odradek_cluster: RunningCluster, capsys: pytest.CaptureFixture[str]) -> RunJob:
    """A function that runs a job in the Spark session of the tests, and returns its result or its error message.

    `topic` may be None; then the arguments name the topics.
    """

    def once(job: Any, topic: str | None, *arguments: str, **keywords: Any) -> dict[str, Any]:
        source = ["--bootstrap-servers", odradek_cluster.bootstrap, *(["--topic", topic] if topic else [])]
        while True:
            capsys.readouterr()
            code = job.main([*source, *arguments], open_session=lambda name: nullcontext(spark), **keywords)
            output = capsys.readouterr()
            if code and TOO_BUSY in output.err.splitlines()[-1]:
                continue
            if code:
                return {"error": output.err.splitlines()[-1]}
            result: dict[str, Any] = json.loads(output.out.splitlines()[-1])
            return result

    return once
