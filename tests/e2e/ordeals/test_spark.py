"""Tests the example's Spark job: a driver and its executors, all in pods, read a topic and write Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Producer

from support.figures import tell
from support.images import Images
from support.kubernetes import Kubernetes
from support.product import EXAMPLES, TOPIC, Demo
from support.volumes import Volumes
from support.waiting import eventually

pytestmark = pytest.mark.e2e_full

JOB: Final = "load-departures"
FILES: Final = (EXAMPLES / "spark/account.yaml", EXAMPLES / "spark/load.yaml")
DEPARTURES: Final = "departures"
EVENTS: Final = 500
DONE_SECONDS: Final = 600.0


@pytest.fixture
def disk(kubernetes: Kubernetes, namespace: str) -> Iterator[None]:
    """Disks for the files, which are larger than those of the brokers."""
    made = Volumes(kubectl=kubernetes.kubectl, own=kubernetes.own, prefix=f"{namespace}-spark")
    made.provide(1, size="5Gi")
    yield
    made.remove()


@pytest.fixture
def departures(demo: Demo, bootstrap: str) -> Iterator[str]:
    """The topic of the example, with records."""
    demo.make_topic(DEPARTURES, partitions=4, deletion="Delete")
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(EVENTS):
        producer.produce(DEPARTURES, f'{{"number": {number}}}'.encode(), key=str(number % 7).encode())
    assert producer.flush(60) == 0
    yield DEPARTURES
    demo.kubectl.delete(TOPIC, DEPARTURES)


def ended(demo: Demo) -> str:
    """The type of the condition with which the job ended, empty while it runs."""
    status = demo.kubectl.require("job", JOB).get("status", {})
    return next((one["type"] for one in status.get("conditions", []) if one["status"] == "True"), "")


def test_the_example_loads_a_topic_with_executors(demo: Demo, images: Images, disk: None, departures: str) -> None:
    images.bring("spark")
    try:
        for path in FILES:
            demo.apply(path)
        demo.kubectl.run("create", "job", JOB, f"--from=cronjob/{JOB}")
        how = eventually(lambda: ended(demo), what="the end of the job", seconds=DONE_SECONDS)
        (driver,) = demo.kubectl.pods(f"batch.kubernetes.io/job-name={JOB}")
        output = demo.kubectl.logs(driver.name)

        assert how in ("Complete", "SuccessCriteriaMet"), output
        assert driver.phase == "Succeeded", output
        assert f'"rows": {EVENTS}' in output
        tell(f"Spark loaded {EVENTS} records of {departures}")
    finally:
        demo.kubectl.run("delete", "job", JOB, "--ignore-not-found")
        demo.kubectl.run("delete", *(f"--filename={path}" for path in FILES), "--ignore-not-found")
