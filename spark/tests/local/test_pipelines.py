"""Runs the jobs of the demonstration with real brokers, several times, with new records between the runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import TopicAlreadyExistsError
from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.running_cluster import RunningCluster
from odradek_demo import check, flights
from odradek_demo.demo_command import WINDOWS
from odradek_demo.load import load as send
from odradek_demo.load import wait_for_topic
from odradek_demo.processes import ChildError, spark_job
from pyspark_odradek import pipelines
from pyspark_odradek.pipelines import load, rollup

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

Run = Callable[..., dict[str, Any]]


def rows_of(days: list[str]) -> list[dict[str, str]]:
    rows = flights.read_flights(flights.data_folder())
    return [row for row in rows if row["time_hour"][:10] in days]


def test_a_second_run_takes_only_what_is_new(client: BlockingClient, run_job: Run, tmp_path: Path) -> None:
    topic = "departures-of-two-days"
    keep = (("retention.ms", "-1"),)
    client.admin.create_topics([NewTopic(name=topic, partitions=4, replication_factor=1, configs=keep)])
    wait_for_topic(client, topic, timeout_seconds=30)
    windows = ["--output", str(tmp_path / "windows"), "--checkpoint", str(tmp_path / "checkpoint"), *WINDOWS]
    # Both halves have events in the same hours, so the second run must update existing windows.
    windows += ["--lateness", "3 days"]
    rows = rows_of(["2013-06-01", "2013-06-02"])
    halves = [flights.events(rows[::2]), flights.events(rows[1::2])]
    for half in halves:
        send(client, topic, half, lambda acknowledged: None)
        result = run_job(rollup, topic, *windows)
        assert (result["rows"], result["dropped_late"]) == (len(half), 0)
        assert run_job(load, topic, "--output", str(tmp_path / "archive"))["rows"] == len(half)
    expected = flights.expected(rows)
    assert check.compare_windows(check.read_windows(tmp_path / "windows"), expected) == []
    assert check.compare_archive(check.read_archive(tmp_path / "archive"), halves[0] + halves[1], expected) == []
    assert run_job(load, topic, "--output", str(tmp_path / "archive"))["rows"] == 0


def test_events_that_are_too_late_are_counted(client: BlockingClient, run_job: Run, tmp_path: Path) -> None:
    topic = "late-departures"
    keep = (("retention.ms", "-1"),)
    client.admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1, configs=keep)])
    wait_for_topic(client, topic, timeout_seconds=30)
    windows = ["--output", str(tmp_path / "windows"), "--checkpoint", str(tmp_path / "checkpoint"), *WINDOWS]
    for day, dropped in (("2013-06-05", 0), ("2013-06-01", 1)):
        send(client, topic, flights.events(rows_of([day])[:1]), lambda acknowledged: None)
        result = run_job(rollup, topic, *windows)
        assert result.get("dropped_late") == dropped, result


def test_a_topic_made_anew_is_not_taken_for_the_old_one(client: BlockingClient, run_job: Run, tmp_path: Path) -> None:
    topic = "created-again"

    def make(count: int) -> None:
        made = False
        while not made:
            # As in Apache Kafka, a deleted topic disappears from the list before its deletion is complete.
            with suppress(TopicAlreadyExistsError):
                client.admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
                made = True
        wait_for_topic(client, topic, timeout_seconds=30)
        with client.producer() as producer:
            producer.send_many(topic, [(None, b"v", 2_000_000_000_000)] * count, partition=0).result()

    make(5)
    assert run_job(load, topic, "--output", str(tmp_path))["rows"] == 5
    client.admin.delete_topics([topic])
    make(2)
    assert client.latest_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 2}
    error = run_job(load, topic, "--output", str(tmp_path))["error"]
    assert error.startswith("error: topic created-again was deleted and created again")


def test_spark_submit_tells_a_failure_in_one_sentence(odradek_cluster: RunningCluster, tmp_path: Path) -> None:
    script = Path(pipelines.__file__).with_name("load.py")
    source = ["--bootstrap-servers", odradek_cluster.bootstrap, "--topic", "nowhere", "--output", str(tmp_path / "o")]
    with (
        spark_job(script, source, tmp_path / "load.log", cores=2, scratch=tmp_path) as job,
        pytest.raises(ChildError, match=r"exit code 1: .*nowhere"),
    ):
        job.until("result", lambda event: None, timeout_seconds=250, silence_seconds=250)
