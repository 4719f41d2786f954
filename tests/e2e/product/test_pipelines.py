"""Tests the example Pipelines: a batch job and a streaming job on the departures, while a driver and an executor die.

The results are compared with the CSV that the departures come from.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from kube.cluster import Cluster
from odradek_demo.flights import Event, data_folder, events, expected, read_flights
from odradek_operator.pipelines import pipeline_names as names
from support.figures import tell
from support.images import Images
from support.kubernetes import Kubernetes
from support.product import EXAMPLES, PIPELINE, Demo, Release
from support.tables import parse
from support.values import Pod
from support.volumes import Volumes
from support.waiting import eventually, scaled

pytestmark = pytest.mark.e2e_full

FILES: Final = EXAMPLES / "pipelines"
ARCHIVE: Final = "departures-archive"
DELAYS: Final = "departures-delays"
SOURCE: Final = "departures"
TARGET: Final = "departures-delayed"
LATE_MINUTES: Final = 15
START_SECONDS: Final = 300.0
DONE_SECONDS: Final = 900.0
LAG_METRIC: Final = "odradek_pipeline_lag_records"
EVERY_MINUTE: Final = {"spec": {"schedule": {"cron": "* * * * *"}}}


@pytest.fixture(scope="module")
def departures(demo: Demo, outside: str) -> list[Event]:
    """All departures of the CSV, in the topic of the example."""
    found = events(read_flights(data_folder()))
    demo.await_topic(SOURCE)
    settings = {"bootstrap.servers": outside, "acks": "all", "enable.idempotence": True, "linger.ms": 50}
    producer = Producer({**settings, "queue.buffering.max.messages": len(found)})
    failed: list[str] = []
    for key, value, timestamp in found:
        producer.produce(SOURCE, value, key=key, timestamp=timestamp, on_delivery=lambda e, _: e and failed.append(e))
        producer.poll(0)
    assert producer.flush(scaled(120)) == 0
    assert not failed, failed[0]
    return found


@pytest.fixture(scope="module")
def disks(kubernetes: Kubernetes, demo: Demo) -> Iterator[Volumes]:
    """Disks for the table and the checkpoints, smaller than those of the brokers, so that the claims get these."""
    made = Volumes(kubectl=kubernetes.kubectl, own=kubernetes.own, prefix=f"{demo.kubectl.namespace}-pipelines")
    made.provide(2, size="5Gi")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def pipelines(demo: Demo, images: Images, disks: Volumes, departures: list[Event]) -> Iterator[None]:
    """The Pipelines of the example, of which the batch job runs every minute."""
    images.bring("spark")
    demo.apply(FILES)
    demo.kubectl.patch(PIPELINE, ARCHIVE, EVERY_MINUTE)
    yield
    demo.kubectl.run("delete", f"--filename={FILES}", "--ignore-not-found")


def status(demo: Demo, pipeline: str) -> dict[str, Any]:
    """The status of a Pipeline."""
    found: dict[str, Any] = demo.kubectl.require(PIPELINE, pipeline).get("status", {})
    return found


def row(demo: Demo, pipeline: str) -> dict[str, str]:
    """What `kubectl get pipelines` shows of a Pipeline."""
    rows = {each["NAME"]: each for each in parse(demo.kubectl.run("get", "pipelines"))}
    return rows[pipeline]


def pods(demo: Demo, pipeline: str, role: str) -> list[Pod]:
    """The running pods of a role."""
    selector = ",".join(f"{key}={value}" for key, value in names.pipeline_selector(pipeline, role).items())
    return [pod for pod in demo.kubectl.pods(selector) if pod.phase == "Running"]


def kill(demo: Demo, pipeline: str, role: str) -> str:
    """Kill the process in one running pod of a role. Returns the name of the pod."""
    running = eventually(lambda: pods(demo, pipeline, role), what=f"a running {role}", seconds=START_SECONDS)
    demo.kubectl.delete("pod", running[0].name, force=True)
    return running[0].name


def group_lags(bootstrap: str) -> list[int]:
    """The lag of each partition that `odradek group describe` shows of the group of the streaming job."""
    describe = [sys.executable, "-m", "odradek.cli.main", "group", "describe", DELAYS, "--offsets", "--output", "json"]
    done = subprocess.run([*describe, "--bootstrap-server", bootstrap], check=True, capture_output=True, text=True)
    (group,) = json.loads(done.stdout)
    return [offset["lag"] for offset in group["offsets"]]


def is_delayed(value: bytes) -> bool:
    """Whether an event is one that the streaming job writes."""
    delay = json.loads(value)["dep_delay"]
    return delay is not None and delay >= LATE_MINUTES


def identity(value: bytes) -> tuple[str, int, float]:
    """The fields of an event that the streaming job keeps."""
    event = json.loads(value)
    return event["carrier"], int(event["flight"]), float(event["dep_delay"])


def committed(bootstrap: str, count: int) -> Counter[tuple[str, int, float]]:
    """What consumers with read_committed see, when they have at least `count` records and no more follow."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "pipelines-check",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
    )
    found: Counter[tuple[str, int, float]] = Counter()
    try:
        consumer.subscribe([TARGET])
        idle = 0
        while found.total() < count or idle < 5:
            message = consumer.poll(2.0)
            idle = idle + 1 if message is None else 0
            assert idle < scaled(60), f"{found.total()} of {count} records are visible"
            if message is not None:
                assert message.error() is None, message.error()
                value = message.value()
                assert isinstance(value, bytes)
                found[identity(value)] += 1
    finally:
        consumer.close()
    return found


def committed_files(folder: Path) -> list[str]:
    """The files of a table of Spark's file sink. Files of batches that failed are there, too, but not in its log."""
    logs = {int(log.name.partition(".")[0]): log for log in (folder / "_spark_metadata").glob("[0-9]*")}
    first = max((number for number, log in logs.items() if log.name.endswith(".compact")), default=0)
    found = []
    for number, log in sorted(logs.items()):
        lines = log.read_text(encoding="utf-8").splitlines()[1:] if number >= first else []
        found += [json.loads(line)["path"].rpartition(f"/{folder.name}/")[2] for line in lines]
    return [str(folder / name) for name in found]


@pytest.mark.usefixtures("pipelines")
def test_the_streaming_job_writes_every_delayed_departure_once(
    demo: Demo, outside: str, departures: list[Event]
) -> None:
    eventually(
        lambda: row(demo, DELAYS)["PHASE"], lambda phase: phase == "Running", what="Running", seconds=START_SECONDS
    )
    executor = kill(demo, DELAYS, names.EXECUTOR)
    driver = kill(demo, DELAYS, names.DRIVER)
    eventually(
        lambda: status(demo, DELAYS).get("driver"),
        lambda name: name not in (None, driver),
        what="another driver",
        seconds=START_SECONDS,
    )
    eventually(lambda: row(demo, DELAYS)["LAG"], lambda lag: lag == "0", what="no lag", seconds=DONE_SECONDS)
    found = status(demo, DELAYS)
    assert found["lastCheckpoint"] and "error" not in found, found

    wanted = Counter(identity(value) for _, value, _ in departures if is_delayed(value))
    assert committed(outside, wanted.total()) == wanted
    tell(f"a streaming Pipeline wrote {wanted.total()} records once, with {driver} and {executor} killed")


@pytest.mark.usefixtures("pipelines")
def test_the_lag_of_the_streaming_job_is_visible_everywhere(
    demo: Demo, outside: str, operator_release: Release
) -> None:
    eventually(lambda: row(demo, DELAYS)["LAG"], lambda lag: lag == "0", what="no lag", seconds=DONE_SECONDS)
    labels = {"pipeline_namespace": demo.kubectl.namespace, "pipeline": DELAYS}

    def exported() -> list[float]:
        service = f"services/{operator_release.name}-operator:http/proxy/metrics"
        path = f"/api/v1/namespaces/{operator_release.kubectl.namespace}/{service}"
        families = text_string_to_metric_families(operator_release.kubectl.run("get", "--raw", path))
        samples = [sample for family in families for sample in family.samples]
        return [each.value for each in samples if each.name == LAG_METRIC and each.labels == labels]

    eventually(exported, lambda lag: lag == [0.0], what="the lag as a metric of the operator")
    lags = eventually(lambda: group_lags(outside), lambda lags: lags and not any(lags), what="the lag of the group")
    tell(f"the lag of a streaming Pipeline is 0 in kubectl, in Prometheus and in its group of {len(lags)} partitions")


@pytest.mark.usefixtures("pipelines")
def test_the_batch_job_archives_every_departure_once(demo: Demo, own_cluster: Cluster, disks: Volumes) -> None:
    killed = kill(demo, ARCHIVE, names.DRIVER)

    def has_succeeded() -> bool:
        last = status(demo, ARCHIVE).get("lastRun", {})
        return bool(last.get("result") == "Succeeded")

    eventually(has_succeeded, what="a run that succeeds", seconds=DONE_SECONDS)
    volume = demo.kubectl.require("persistentvolumeclaim", ARCHIVE)["spec"]["volumeName"]
    path = Path(demo.kubectl.require("persistentvolume", volume)["spec"]["local"]["path"])
    files = committed_files(path / "departures")
    table = ds.dataset(files, format="parquet", partitioning="hive", partition_base_dir=str(path)).to_table()
    places = Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    wanted = expected(read_flights(data_folder()))

    assert table.num_rows == wanted.flights
    assert max(places.values()) == 1, "a record is there twice"
    assert Counter(table["carrier"].to_pylist()) == wanted.by_carrier
    assert Counter(map(str, table["date"].to_pylist())) == wanted.by_date
    tell(f"a batch Pipeline archived {table.num_rows} departures once, with {killed} killed")


@pytest.mark.usefixtures("pipelines")
def test_deletion_keeps_claims_and_removes_all_else(demo: Demo) -> None:
    eventually(lambda: pods(demo, DELAYS, names.DRIVER), what="a driver", seconds=START_SECONDS)
    demo.kubectl.delete(PIPELINE, DELAYS)
    eventually(
        lambda: demo.kubectl.pods(f"{names.PIPELINE_LABEL}={DELAYS}"),
        lambda left: not left,
        what="the end of driver and executors",
    )
    left = demo.kubectl.list("configmaps", f"{names.PIPELINE_LABEL}={DELAYS}")
    assert left == []
    assert demo.kubectl.get("persistentvolumeclaim", DELAYS) is not None
