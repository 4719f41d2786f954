"""The listener of queries, with the events that Spark sends."""

from __future__ import annotations

import urllib.request
import uuid
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from odradek.base.types import TopicPartition
from pyspark_odradek.observation import QueryListener
from pyspark_odradek.observation.query_states import Behind, behind, offsets_of

ID = uuid.UUID(int=1)
RUN = uuid.UUID(int=2)


def started(listener: QueryListener, name: str | None = "orders", query: uuid.UUID = ID) -> None:
    listener.onQueryStarted(QueryStartedEvent(query, RUN, name, "2026-01-01T00:00:00.000Z", set()))


def progressed(listener: QueryListener, batch: int, end: Any, latest: Any, *, name: str | None = "orders") -> None:
    source = {
        "description": "PythonMicroBatchStream",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 10,
        "inputRowsPerSecond": 5.0,
        "processedRowsPerSecond": 20.0,
        "metrics": {},
    }
    progress = {
        "id": str(ID),
        "runId": str(RUN),
        "name": name,
        "timestamp": "2026-01-01T00:00:01.000Z",
        "batchId": batch,
        "batchDuration": 500,
        "numInputRows": 10,
        "inputRowsPerSecond": 5.0,
        "processedRowsPerSecond": 20.0,
        "durationMs": {"addBatch": 400, "triggerExecution": 500},
        "eventTime": {},
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "noop", "numOutputRows": 10, "metrics": {}},
        "observedMetrics": {},
    }
    listener.onQueryProgress(QueryProgressEvent.fromJson({"progress": progress}))


def ended(listener: QueryListener, exception: str | None = None) -> None:
    listener.onQueryTerminated(QueryTerminatedEvent(ID, RUN, exception, None))


def exported(listener: QueryListener) -> list[str]:
    text = generate_latest(listener.registry).decode()
    return [line.removeprefix("odradek_spark_query_") for line in text.splitlines() if not line.startswith("#")]


def test_progress_is_exported() -> None:
    listener = QueryListener(now_seconds=lambda: 1000.0)
    started(listener)
    progressed(listener, 7, {"t": {"0": 4, "1": 10}}, '{"t": {"0": 10, "1": 10, "2": 3}}')
    lines = exported(listener)
    for line in (
        'running{query="orders"} 1.0',
        'input_rows_total{query="orders"} 10.0',
        'input_rows_per_second{query="orders"} 5.0',
        'processed_rows_per_second{query="orders"} 20.0',
        'batch_id{query="orders"} 7.0',
        'last_progress_timestamp_seconds{query="orders"} 1000.0',
        'duration_ms{phase="addBatch",query="orders"} 400.0',
        'min_offsets_behind_latest{query="orders",source="0"} 0.0',
        'avg_offsets_behind_latest{query="orders",source="0"} 3.0',
        'max_offsets_behind_latest{query="orders",source="0"} 6.0',
        'total_offsets_behind_latest{query="orders",source="0"} 6.0',
        'failures_total{query="orders"} 0.0',
    ):
        assert line in lines, lines


def test_totals_count_micro_batches() -> None:
    listener = QueryListener()
    started(listener)
    for batch in range(3):
        progressed(listener, batch, {"t": {"0": batch}}, {"t": {"0": 9}})
    assert {'input_rows_total{query="orders"} 30.0', 'batches_total{query="orders"} 3.0'} <= {*exported(listener)}


def test_a_query_that_has_ended_keeps_no_rate() -> None:
    listener = QueryListener()
    started(listener)
    progressed(listener, 1, {"t": {"0": 4}}, {"t": {"0": 9}})
    ended(listener, "it broke")
    lines = exported(listener)
    assert {'running{query="orders"} 0.0', 'failures_total{query="orders"} 1.0'} <= {*lines}
    assert not [line for line in lines if line.startswith(("input_rows_per_second", "max_offsets"))]
    assert listener.snapshot()["orders"]["error"] == "it broke"
    started(listener)
    assert listener.snapshot()["orders"]["error"] is None
    assert 'failures_total{query="orders"} 1.0' in exported(listener)


def test_the_snapshot_has_the_latest_progress_of_each_query() -> None:
    listener = QueryListener()
    assert listener.snapshot() == {}
    started(listener)
    assert listener.snapshot()["orders"]["batchId"] is None
    progressed(listener, 3, {"t": {"0": 4, "1": 8}}, {"t": {"0": 9, "1": 9}})
    assert listener.snapshot() == {
        "orders": {
            "id": str(ID),
            "name": "orders",
            "running": True,
            "batchId": 3,
            "numInputRows": 10,
            "inputRowsPerSecond": 5.0,
            "processedRowsPerSecond": 20.0,
            "durationMs": {"addBatch": 400, "triggerExecution": 500},
            "timestamp": "2026-01-01T00:00:01.000Z",
            "offsetsBehindLatest": 6,
            "maxOffsetsBehindLatest": 5,
            "error": None,
        }
    }


def test_a_query_without_a_name_has_its_id() -> None:
    listener = QueryListener()
    started(listener, name=None)
    progressed(listener, 0, None, None, name=None)
    assert list(listener.snapshot()) == [str(ID)]
    assert listener.snapshot()[str(ID)]["offsetsBehindLatest"] is None


def test_a_query_with_the_name_of_an_earlier_one_takes_its_place() -> None:
    listener = QueryListener()
    started(listener)
    progressed(listener, 5, {"t": {"0": 4}}, {"t": {"0": 9}})
    other = uuid.UUID(int=9)
    started(listener, query=other)
    assert (listener.snapshot()["orders"]["id"], listener.snapshot()["orders"]["batchId"]) == (str(other), None)


def test_an_idle_query_is_alive() -> None:
    seconds = iter((1.0, 2.0))
    listener = QueryListener(now_seconds=lambda: next(seconds))
    started(listener)
    progressed(listener, 1, {"t": {"0": 4}}, {"t": {"0": 9}})
    listener.onQueryIdle(QueryIdleEvent(ID, RUN, "2026-01-01T00:00:02.000Z"))
    assert 'last_progress_timestamp_seconds{query="orders"} 2.0' in exported(listener)


def test_metrics_have_a_port_if_one_is_wanted() -> None:
    listener = QueryListener(port=0, address="127.0.0.1")
    started(listener)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics") as response:
            assert b'odradek_spark_query_running{query="orders"} 1.0' in response.read()
    finally:
        listener.close()
    registry = CollectorRegistry()
    assert QueryListener(registry=registry).registry is registry
    assert QueryListener(registry=CollectorRegistry()).port is None


def test_offsets_of_other_sources_have_no_lag() -> None:
    assert offsets_of("17") == offsets_of("not json") == offsets_of(None) == offsets_of({"logOffset": 3}) == {}
    # Only offsets of partitions count, whatever else a source keeps with them.
    assert offsets_of({"t": {"0": 3}, "": {"ids": "x"}}) == {TopicPartition("t", 0): 3}
    assert behind({}, {}) is None
    assert behind({TopicPartition("t", 0): 5}, {TopicPartition("t", 0): 3}) == Behind(0, 0.0, 0, 0)
