"""Loads a topic into an S3 bucket, with Hadoop's client of S3 and a server for it (versitygw, on a local folder)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pyspark
import pytest

from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_demo.load import wait_for_topic
from odradek_testkit.interop.apache import s3_jars
from pyspark_odradek.pipelines.manifest import archive_files

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.daily, pytest.mark.timeout(1800)]

HERE: Final = Path(__file__).parent
BUCKET: Final = "bucket"
TIME_MS: Final = 1_700_006_400_000
ACCESS: Final = {"ROOT_ACCESS_KEY": "odradek", "ROOT_SECRET_KEY": "a-secret-of-a-test"}
Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(cache: Path) -> Path:
    """The program of the server for S3."""
    assert shutil.which("go") is not None, "Go is needed to build the server for S3: install it."
    built, name = cache / "s3", "versitygw"
    built.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", str(built / name), "github.com/versity/versitygw/cmd/versitygw"]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(command, cwd=HERE / "s3", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built / name


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the objects of the bucket."""
    folder = tmp_path_factory.mktemp("s3") / BUCKET
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def endpoint(server: Path, bucket: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with (tmp_path_factory.mktemp("s3-log") / "log").open("wb") as log:
        command = [str(server), "--port", address, "posix", str(bucket.parent)]
        with subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **ACCESS}) as process:
            try:
                wait_until(lambda: _listens(port), what="the server for S3")
                yield f"http://{address}"
            finally:
                process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def program(endpoint: str, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A function that runs a Python program with Spark's settings for S3, as docs/spark.md describes them."""
    settings = {
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": ACCESS["ROOT_ACCESS_KEY"],
        "fs.s3a.secret.key": ACCESS["ROOT_SECRET_KEY"],
    }
    scratch = tmp_path_factory.mktemp("spark-s3")
    arguments = ["--jars", ",".join(map(str, s3_jars(cache, hadoop_version())))]
    for key, value in settings.items():
        arguments += ["--conf", f"spark.hadoop.{key}={value}"]
    arguments += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1", "pyspark-shell"]
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": " ".join(arguments), "SPARK_LOCAL_DIRS": str(scratch)}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, *command]
        return subprocess.run(words, cwd=HERE, env=environment, capture_output=True, text=True, check=False)

    return run


def hadoop_version() -> str:
    """The version of Hadoop in PySpark."""
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.rpartition("-")[2]


def test_the_store_of_the_pipelines(program: Program) -> None:
    done = program("s3_store.py", f"s3a://{BUCKET}/a store")
    assert done.returncode == 0, done.stderr


def test_a_topic_is_loaded_by_several_runs(
    program: Program, client: BlockingClient, bootstrap: str, bucket: Path
) -> None:
    """Two of them run at the same time."""
    topic, sent = "s3-load", []
    keep = (("retention.ms", "-1"),)
    client.admin.create_topics([NewTopic(name=topic, partitions=2, replication_factor=1, configs=keep)])
    wait_for_topic(client, topic, timeout_seconds=60)

    def load() -> dict[str, Any]:
        arguments = ["--bootstrap-servers", bootstrap, "--topic", topic, "--output", f"s3a://{BUCKET}/archive"]
        done = program("-m", "pyspark_odradek.pipelines.load", *arguments)
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if done.returncode == 0 else {"error": done.stderr}

    for number in range(3):
        more = [f"{number}-{each}" for each in range(100)]
        with client.producer() as producer:
            for each, value in enumerate(more):
                producer.send_many(topic, [(None, value.encode(), TIME_MS)], partition=each % 2).result()
        sent += more
        if number < 2:
            assert (found := load()).get("rows") == 100, found
            continue
        with ThreadPoolExecutor(2) as threads:
            found = [threads.submit(load) for _ in range(2)]
            results = [each.result() for each in found]
        assert any("error" not in each for each in results), results
    assert load().get("rows") == 0, "nothing is left to load"
    stored = [pq.ParquetFile(path).read(["value"])[0].to_pylist() for path in archive_files(bucket / "archive")]
    assert sorted(value.decode() for values in stored for value in values) == sorted(sent)
