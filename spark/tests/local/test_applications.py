"""Runs the applications `transform`, `mirror_*` and `pipeline_job` with real brokers."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.running_cluster import RunningCluster
from odradek_demo.load import wait_for_topic
from pyspark_odradek.pipelines import mirror_from_files, mirror_to_files, pipeline_job, transform
from pyspark_odradek.pipelines.pipeline_spec import PipelineSpec, parse

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

RunJob = Callable[..., dict[str, Any]]
TOO_BUSY = "Python worker failed to connect back"
TIME_MS = 1_700_000_000_000


def make_topic(client: BlockingClient, name: str, partitions: int = 2) -> str:
    client.admin.create_topics(
        [NewTopic(name=name, partitions=partitions, replication_factor=1, configs=(("retention.ms", "-1"),))]
    )
    wait_for_topic(client, name, timeout_seconds=60)
    return name


def send(client: BlockingClient, topic: str, numbers: range) -> None:
    with client.producer() as producer:
        for number in numbers:
            producer.send(
                topic,
                b"%d" % number if number % 5 else None,
                key=b"k%d" % number,
                partition=number % 2,
                timestamp_ms=TIME_MS + number,
                headers=[("h", b"%d" % number), ("n", None)] if number % 3 == 0 else (),
            )
        producer.flush()


def records(spark: SparkSession, cluster: RunningCluster, topic: str) -> list[Any]:
    """The records of a topic, without the topic, in the order of their partitions and offsets."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    rows = spark.read.format("odradek").options(**options).load().orderBy("partition", "offset").drop("topic").collect()
    return [row.asDict(recursive=True) for row in rows]


def values(spark: SparkSession, cluster: RunningCluster, topic: str) -> list[str]:
    return sorted(bytes(row["value"]).decode() for row in records(spark, cluster, topic))


def test_a_topic_is_mirrored_to_files_and_back(
    client: BlockingClient, spark: SparkSession, odradek_cluster: RunningCluster, run_job: RunJob, tmp_path: Path
) -> None:
    topic, back = make_topic(client, "mirrored"), make_topic(client, "mirrored-back")
    files = ["--output", str(tmp_path / "files"), "--checkpoint", str(tmp_path / "checkpoint")]
    for part in (range(20), range(20, 30)):
        send(client, topic, part)
        assert run_job(mirror_to_files, topic, *files)["rows"] == len(part)
    assert run_job(mirror_to_files, topic, *files)["rows"] == 0
    found = run_job(mirror_from_files, None, "--input", str(tmp_path / "files"), "--to-topic", back)
    assert (found["rows"], found["topics"]) == (30, 1)
    before = records(spark, odradek_cluster, topic)
    assert records(spark, odradek_cluster, back) == before
    assert sum(bool(row["headers"]) for row in before) == 10

    small = make_topic(client, "mirrored-small", 1)
    mirror = ["--input", str(tmp_path / "files"), "--to-topic", small, "--where", "partition = 1 AND offset < 5"]
    assert (
        "has 1 partitions, but there are records of partition 1" in run_job(mirror_from_files, None, *mirror)["error"]
    )
    assert run_job(mirror_from_files, None, *mirror, "--by-key")["rows"] == 5
    assert [row["key"] for row in records(spark, odradek_cluster, small)] == [row["key"] for row in before[15:20]]
    spark.range(3).write.parquet(str(tmp_path / "other"))
    assert "has no column" in run_job(mirror_from_files, None, "--input", str(tmp_path / "other"))["error"]


def test_a_topic_is_transformed_into_another(
    client: BlockingClient, spark: SparkSession, odradek_cluster: RunningCluster, run_job: RunJob, tmp_path: Path
) -> None:
    topic, target = make_topic(client, "transformed"), make_topic(client, "transformed-target")
    sql = tmp_path / "query.sql"
    sql.write_text("SELECT key, concat('x', string(value)) AS value FROM source WHERE int(string(value)) > 10")
    arguments = ["--to-topic", target, "--checkpoint", str(tmp_path / "checkpoint"), "--sql-file", str(sql)]
    for part in (range(1, 15), range(15, 20)):
        send(client, topic, part)
        assert run_job(transform, topic, *arguments)["rows"] == len(part)
    expected = sorted(f"x{number}" for number in range(11, 20) if number % 5)
    assert values(spark, odradek_cluster, target) == expected
    wrong = [*arguments[:2], "--checkpoint", str(tmp_path / "other"), "--sql", "SELECT nothing FROM source"]
    error = run_job(transform, topic, *wrong)["error"]
    assert "nothing" in error
    assert "Traceback" not in error


def spec_file(folder: Path, cluster: RunningCluster, **changes: object) -> Path:
    spec = {
        "name": folder.name,
        "bootstrapServers": cluster.bootstrap,
        "transformation": {"sql": "SELECT string(key) AS key, string(value) AS value, partition FROM source"},
        "target": {"path": str(folder / "target"), "partitionBy": ["partition"]},
        "mode": "batch",
        "checkpoint": str(folder / "checkpoint"),
        **changes,
    }
    path = folder / "pipeline.json"
    path.write_text(json.dumps(spec))
    return path


def run_patiently(job: pipeline_job.PipelineJob, spec: PipelineSpec, spark: SparkSession) -> None:
    """Run a job, again if the machine is too busy for Spark's limit of ten seconds for the start of a process."""
    while True:
        try:
            job.run(spec, lambda name: nullcontext(spark))
        except PySparkException as error:
            if TOO_BUSY not in str(error):
                raise
        else:
            return


@pytest.fixture
def run_pipeline(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """A function that runs a job in the session of the tests, and returns its exit code and its last line."""

    def once(*arguments: str) -> tuple[int, str]:
        while True:
            code = pipeline_job.main([*arguments], open_session=lambda name: nullcontext(spark))
            output = capsys.readouterr()
            line = (output.err if code else output.out).splitlines()[-1]
            if TOO_BUSY not in line:
                return code, line

    return once


def test_a_batch_pipeline_reads_what_is_new(
    client: BlockingClient,
    spark: SparkSession,
    odradek_cluster: RunningCluster,
    run_pipeline: Callable[..., tuple[int, str]],
    tmp_path: Path,
) -> None:
    topic = make_topic(client, "pipeline-batch")
    spec = spec_file(tmp_path, odradek_cluster, source={"topics": [topic]})
    for total, part in ((4, range(1, 5)), (7, range(6, 9)), (7, range(0))):
        send(client, topic, part)
        code, line = run_pipeline("--spec", str(spec))
        assert (code, json.loads(line)["rows"]) == (0, len(part))
        assert spark.read.parquet(str(tmp_path / "target")).count() == total


def test_the_status_of_a_job_that_ended(
    client: BlockingClient, spark: SparkSession, odradek_cluster: RunningCluster, tmp_path: Path
) -> None:
    topic = make_topic(client, "pipeline-status")
    send(client, topic, range(8))
    job = pipeline_job.PipelineJob()
    spec = parse(spec_file(tmp_path, odradek_cluster, source={"topics": [topic]}).read_text())
    assert job.status().phase == "Running"
    run_patiently(job, spec, spark)
    status = job.status()
    assert (status.phase, status.batch, status.offsets_behind_latest, status.error) == ("Succeeded", 0, 0, None)
    assert status.last_checkpoint is not None


def test_a_streaming_pipeline_from_topic_to_topic_with_its_status(
    client: BlockingClient, spark: SparkSession, odradek_cluster: RunningCluster, tmp_path: Path
) -> None:
    topic, target = make_topic(client, "pipeline-stream"), make_topic(client, "pipeline-stream-target")
    send(client, topic, range(1, 5))
    changes = {
        "source": {"topics": [topic]},
        "target": {"topic": target},
        "mode": {"streaming": {"triggerSeconds": 0}},
    }
    spec = parse(spec_file(tmp_path, odradek_cluster, **changes).read_text())
    job = pipeline_job.PipelineJob()
    with job.served(0) as server, client.consumer(target, auto_offset_reset="earliest") as consumer:
        assert server is not None
        ended = threading.Event()

        def receive(count: int) -> list[bytes]:
            found: list[bytes] = []
            while len(found) < count and not ended.is_set():
                for batch in consumer.getmany(timeout_ms=500).values():
                    found += [bytes(record.value) for record in batch]
            return sorted(found)

        def use() -> tuple[list[bytes], list[bytes], dict[str, Any], str]:
            """Send more records while the job runs, wait until it has read them, and stop it."""
            try:
                first = receive(4)
                send(client, topic, range(6, 8))
                second = receive(2)
                status = json.loads(get(server.port, "/status"))
                while not (status["batch"] and status["offsetsBehindLatest"] == 0) and not ended.is_set():
                    status = json.loads(get(server.port, "/status"))
                return first, second, status, get(server.port, "/metrics")
            finally:
                # Not the query itself: it may not have started.
                for query in spark.streams.active:
                    query.stop()

        with ThreadPoolExecutor(1) as pool:
            used = pool.submit(use)
            # In the main thread, as in production: Spark finds Python sources only in threads with an active session.
            try:
                run_patiently(job, spec, spark)
            finally:
                ended.set()
            first, second, status, metrics = used.result()
    assert (first, second) == ([b"1", b"2", b"3", b"4"], [b"6", b"7"])
    assert (status["phase"], status["error"]) == ("Running", None)
    assert status["batch"] >= 1
    assert spec.name in metrics
    assert values(spark, odradek_cluster, target) == ["1", "2", "3", "4", "6", "7"]


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return str(answer.read().decode())


def test_a_failure_is_in_the_termination_log(
    odradek_cluster: RunningCluster, run_pipeline: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    spec = spec_file(tmp_path, odradek_cluster, source={"topics": ["pipeline-nowhere"]})
    code, line = run_pipeline("--spec", str(spec), "--termination-log", str(log))
    assert code == 1
    assert "pipeline-nowhere" in line
    assert line == f"error: {log.read_text()}"
    spec.write_text(spec.read_text().replace('"batch"', '"now"'))
    code, line = run_pipeline("--spec", str(spec), "--termination-log", str(log))
    assert code == 1
    assert log.read_text().startswith("mode: must be")
