"""Loads topics into files with real brokers: several topics, reloads, and a crash at each change of the folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odradek.client.blocking.client import BlockingClient
from odradek.client.models import NewTopic
from odradek_demo.load import wait_for_topic
from odradek_testkit.interop.file_stores import check_file_store
from pyspark_odradek.pipelines import load
from pyspark_odradek.pipelines.file_store import FileStore, LocalStore
from pyspark_odradek.pipelines.hadoop_store import HadoopStore, open_store
from pyspark_odradek.pipelines.manifest import archive_files

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

DAY_MS = 86_400_000
DAYS_MS = [1_700_006_400_000 + DAY_MS * day for day in range(4)]
RunJob = Callable[..., dict[str, Any]]


class Crash(BaseException):
    """The process ends here."""


class Crashing:
    """A store that crashes before its change number `left`."""

    def __init__(self, store: FileStore, left: int) -> None:
        self._store = store
        self.left = left

    def __getattr__(self, name: str) -> Any:
        wanted = getattr(self._store, name)
        if name not in ("create", "move", "remove", "persist"):
            return wanted

        def change(*arguments: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Crash
            return wanted(*arguments)

        return change


def make_topic(client: BlockingClient, name: str, partitions: int = 2) -> str:
    client.admin.create_topics(
        [NewTopic(name=name, partitions=partitions, replication_factor=1, configs=(("retention.ms", "-1"),))]
    )
    wait_for_topic(client, name, timeout_seconds=60)
    return name


def send(client: BlockingClient, topic: str, values: list[str], time_ms: int) -> None:
    with client.producer() as producer:
        for number, value in enumerate(values):
            producer.send_many(topic, [(None, value.encode(), time_ms)], partition=number % 2).result()


def values(folder: Path) -> list[str]:
    return sorted(
        value.decode()
        for path in archive_files(folder)
        for value in pq.ParquetFile(path).read(["value"])[0].to_pylist()
    )


def test_topics_by_pattern_each_with_its_folders(client: BlockingClient, run_job: RunJob, tmp_path: Path) -> None:
    one, two = make_topic(client, "load-pattern-1"), make_topic(client, "load-pattern-2")
    send(client, one, ["a", "b"], DAYS_MS[0])
    send(client, two, ["c"], DAYS_MS[1])
    output = ["--pattern", "load-pattern-.*", "--output", str(tmp_path), "--by-topic"]
    first = run_job(load, None, *output)
    assert (first["rows"], first["topics"]) == (3, 2)
    table = ds.dataset([str(path) for path in archive_files(tmp_path)], partitioning="hive").to_table()
    rows = table.select(["topic", "date", "value"]).to_pylist()
    found = sorted((row["topic"], str(row["date"]), row["value"]) for row in rows)
    assert found == [(one, "2023-11-15", b"a"), (one, "2023-11-15", b"b"), (two, "2023-11-16", b"c")]

    three = make_topic(client, "load-pattern-3")
    send(client, three, ["d"], DAYS_MS[0])
    send(client, two, ["e"], DAYS_MS[0])
    second = run_job(load, None, *output)
    assert (second["rows"], second["topics"], second["files"]) == (2, 3, 2)
    assert values(tmp_path) == ["a", "b", "c", "d", "e"]
    assert "does not read" in run_job(load, one, "--output", str(tmp_path), "--by-topic")["error"]
    assert "same --by-topic" in run_job(load, None, *output[:-1])["error"]


def test_records_are_loaded_again_from_a_time_on(client: BlockingClient, run_job: RunJob, tmp_path: Path) -> None:
    topic = make_topic(client, "load-again")
    output = ["--output", str(tmp_path)]
    for day, time_ms in enumerate(DAYS_MS[:3]):
        send(client, topic, [f"{day}-{number}" for number in range(4)], time_ms)
        assert run_job(load, topic, *output)["rows"] == 4
    send(client, topic, ["new"], DAYS_MS[3])
    again = run_job(load, topic, *output, "--from-time", "2023-11-16T00:00:00Z")
    assert (again["rows"], again["replaced_runs"]) == (9, 2)
    assert values(tmp_path) == sorted([*(f"{day}-{number}" for day in range(3) for number in range(4)), "new"])
    assert run_job(load, topic, *output)["rows"] == 0

    newest = tmp_path / "newest"
    assert run_job(load, topic, "--output", str(newest), "--from-time", "2023-11-17")["rows"] == 5
    assert values(newest) == ["2-0", "2-1", "2-2", "2-3", "new"]


def test_a_crash_at_each_change_loses_and_doubles_nothing(
    client: BlockingClient, run_job: RunJob, tmp_path: Path
) -> None:
    """Each run crashes one change later than the one before; new records arrive between runs."""
    topic = make_topic(client, "load-crashes")
    sent: list[str] = []
    crashes = 0
    while True:
        more = [f"{crashes}-{number}" for number in range(3)]
        send(client, topic, more, DAYS_MS[crashes % 4])
        sent += more
        store = Crashing(LocalStore(tmp_path), crashes)
        try:
            run_job(load, topic, "--output", str(tmp_path), stores=lambda spark, path, store=store: store)
        except Crash:
            crashes += 1
        else:
            break
        now = values(tmp_path)
        assert len(now) == len(set(now)), "no record twice at any time"
    assert values(tmp_path) == sorted(sent)
    assert crashes >= 6


@pytest.fixture
def hadoop_store(spark: SparkSession, tmp_path: Path) -> Iterator[HadoopStore]:
    """A store of Hadoop's local file system, which is not atomic when a file is created."""
    yield HadoopStore(spark, str(tmp_path / "hadoop store"))


def test_a_file_system_of_hadoop(hadoop_store: HadoopStore) -> None:
    check_file_store(hadoop_store)


def test_load_on_a_file_system_of_hadoop(
    client: BlockingClient, run_job: RunJob, hadoop_store: HadoopStore, tmp_path: Path
) -> None:
    topic = make_topic(client, "load-hadoop")
    sent: list[str] = []
    for number in range(2):
        more = [f"{number}-{each}" for each in range(4)]
        send(client, topic, more, DAYS_MS[number])
        sent += more
        found = run_job(load, topic, "--output", "unused", stores=lambda spark, path: hadoop_store)
        assert found["rows"] == 4
    assert values(tmp_path / "hadoop store") == sorted(sent)


def test_a_path_of_this_machine_needs_no_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    store = open_store(spark, str(tmp_path / "with space"))
    assert isinstance(store, LocalStore)
    assert store.location == (tmp_path / "with space").as_uri()


def test_a_file_system_that_is_not_there(run_job: RunJob) -> None:
    error = run_job(load, "t", "--output", "nofs://bucket/folder")["error"]
    assert "nofs://bucket/folder" in error
    assert "No FileSystem for scheme" in error
