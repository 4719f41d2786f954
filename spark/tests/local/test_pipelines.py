"""The two jobs by `spark-submit`, as a person runs them, twice each with more records in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.types import TopicPartition
from odradek.client.blocking import BlockingClient
from odradek.client.models import NewTopic
from odradek.testing.cluster import RunningCluster
from pyspark_odradek import pipelines
from pyspark_odradek.demonstration import check, flights
from pyspark_odradek.demonstration.load import load, wait_for_topic
from pyspark_odradek.demonstration.processes import ChildError, ChildEvent, spark_job

pytestmark = [pytest.mark.java, pytest.mark.slow]


def run(name: str, arguments: list[str], folder: Path) -> ChildEvent:
    script = Path(pipelines.__file__).with_name(f"{name}.py")
    with spark_job(script, arguments, folder / f"{name}.log", cores=2, scratch=folder / "scratch") as job:
        result = job.until("result", lambda event: None, timeout_seconds=280, silence_seconds=280)
        job.wait()
        return result


def rows_of(days: list[str]) -> list[dict[str, str]]:
    rows = flights.read_flights(flights.data_folder())
    return [row for row in rows if row["time_hour"][:10] in days]


def test_a_second_run_takes_only_what_is_new(
    odradek_cluster: RunningCluster, client: BlockingClient, tmp_path: Path
) -> None:
    topic = "departures-of-two-days"
    client.admin.create_topics(
        [NewTopic(name=topic, partitions=4, replication_factor=1, configs=(("retention.ms", "-1"),))]
    )
    wait_for_topic(client, topic, timeout_seconds=30)
    source = ["--bootstrap-servers", odradek_cluster.bootstrap, "--topic", topic]
    windows = [*source, "--output", str(tmp_path / "windows"), "--checkpoint", str(tmp_path / "checkpoint")]
    archive = [*source, "--output", str(tmp_path / "archive")]
    # Both halves fall into the same hours, so that the second run has to add to windows that are there.
    rows = rows_of(["2013-06-01", "2013-06-02"])
    halves = [flights.events(rows[::2]), flights.events(rows[1::2])]
    for half in halves:
        load(client, topic, half, lambda acknowledged: None)
        assert run("departures_windows", windows, tmp_path)["dropped_late"] == 0
        assert run("archive", archive, tmp_path)["rows"] == len(half)
    expected = flights.expected(rows)
    assert check.compare_windows(check.read_windows(tmp_path / "windows"), expected) == []
    assert check.compare_archive(check.read_archive(tmp_path / "archive"), halves[0] + halves[1], expected) == []
    assert run("archive", archive, tmp_path)["rows"] == 0


def test_a_topic_that_is_not_there_is_one_sentence(odradek_cluster: RunningCluster, tmp_path: Path) -> None:
    source = ["--bootstrap-servers", odradek_cluster.bootstrap, "--topic", "nowhere", "--output", str(tmp_path / "o")]
    with pytest.raises(ChildError, match=r"exit code 1: .*nowhere"):
        run("archive", source, tmp_path)


def test_a_topic_made_anew_is_not_taken_for_the_old_one(
    odradek_cluster: RunningCluster, client: BlockingClient, tmp_path: Path
) -> None:
    topic = "made-anew"
    for count in (5, 2):
        client.admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
        wait_for_topic(client, topic, timeout_seconds=30)
        with client.producer() as producer:
            producer.send_many(topic, [(None, b"v", 2_000_000_000_000)] * count, partition=0).result()
        arguments = ["--bootstrap-servers", odradek_cluster.bootstrap, "--topic", topic]
        arguments += ["--output", str(tmp_path / "archive")]
        if count == 5:
            assert run("archive", arguments, tmp_path)["rows"] == 5
            client.admin.delete_topics([topic])
            while topic in client.topics():
                pass
        else:
            assert client.latest_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 2}
            with pytest.raises(ChildError, match=r"made-anew-0 is greater than its ending offset"):
                run("archive", arguments, tmp_path)
