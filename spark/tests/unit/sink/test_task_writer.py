"""A task of the sink: what it returns, and what becomes of its producer."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from odradek.client.settings import ClientSettings
from pyspark_odradek.data_source import DefaultSource
from pyspark_odradek.options.sink_options import parse_sink
from pyspark_odradek.sink import shared_producers as module
from pyspark_odradek.sink.shared_producers import MOST_PRODUCERS, SharedProducers, shared_producers
from pyspark_odradek.sink.sink_schema import sink_columns
from pyspark_odradek.sink.task_writer import TaskWriter, WrittenTask

SCHEMA = StructType([StructField("value", StringType())])
OPTIONS = parse_sink({"kafka.bootstrap.servers": "h:1", "topic": "t"})


@dataclass
class Kept:
    """A shared producer that nothing is sent to."""

    taken: list[ClientSettings] = field(default_factory=list)
    discarded: list[ClientSettings] = field(default_factory=list)

    def get(self, settings: ClientSettings) -> Any:
        self.taken.append(settings)

    def discard(self, settings: ClientSettings) -> None:
        self.discarded.append(settings)


def task(kept: Kept) -> TaskWriter:
    return TaskWriter(OPTIONS, sink_columns(SCHEMA, "t"), lambda: kept)


def test_a_task_without_rows_has_written_none() -> None:
    kept = Kept()
    assert task(kept).write(iter([])) == WrittenTask(0)
    assert (kept.taken, kept.discarded) == ([OPTIONS.client], [])


def test_a_failed_task_discards_its_producer() -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        raise RuntimeError("of the query")
        yield

    kept = Kept()
    with pytest.raises(RuntimeError, match="of the query"):
        task(kept).write(rows())
    assert kept.discarded == [OPTIONS.client]


def test_writers_and_messages_can_be_pickled() -> None:
    source = DefaultSource({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    for writer in (source.writer(SCHEMA, False), source.streamWriter(SCHEMA, True)):
        assert pickle.loads(pickle.dumps(writer))._task == TaskWriter(OPTIONS, sink_columns(SCHEMA, "t"))
    assert pickle.loads(pickle.dumps(WrittenTask(3))) == WrittenTask(3)


class Fake:
    """A producer that records how it is closed."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.closed: list[float | None] = []

    def close(self, *, timeout_ms: float | None = None) -> None:
        self.closed.append(timeout_ms)


def settings(number: int) -> ClientSettings:
    return ClientSettings.of(f"h:{number}")


def test_tasks_share_a_producer_until_it_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BlockingProducer", Fake)
    producers = SharedProducers()
    first: Any = producers.get(settings(1))
    assert producers.get(settings(1)) is first
    producers.discard(settings(1))
    producers.discard(settings(1))
    assert first.closed == [0]
    assert producers.get(settings(1)) is not first


def test_the_producer_that_was_not_used_for_longest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BlockingProducer", Fake)
    producers = SharedProducers()
    made: list[Any] = [producers.get(settings(number)) for number in range(1, MOST_PRODUCERS + 1)]
    producers.get(settings(1))
    producers.get(settings(MOST_PRODUCERS + 1))
    assert [fake.closed for fake in made] == [[], [None], [], []]


def test_a_forked_process_has_no_producers_of_its_parent() -> None:
    before = shared_producers()
    child = os.fork()
    if not child:
        os._exit(0 if shared_producers() is not before else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert shared_producers() is before
