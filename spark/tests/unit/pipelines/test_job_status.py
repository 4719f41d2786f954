"""The status of a pipeline's job, as JSON and over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Gauge

from pyspark_odradek.pipelines.job_status import JobStatus, StatusServer

QUERY = {
    "batchId": 12,
    "inputRowsPerSecond": 1.5,
    "processedRowsPerSecond": 2.5,
    "offsetsBehindLatest": 3,
    "timestamp": "2026-01-01T00:00:00.000Z",
}


def test_before_and_after_the_first_micro_batch() -> None:
    assert json.loads(JobStatus.of("Running", {}, None).to_json()) == {
        "phase": "Running",
        "batch": None,
        "inputRowsPerSecond": None,
        "processedRowsPerSecond": None,
        "offsetsBehindLatest": None,
        "lastCheckpoint": None,
        "error": None,
    }
    assert json.loads(JobStatus.of("Failed", QUERY, "no topic").to_json()) == {
        "phase": "Failed",
        "batch": 12,
        "inputRowsPerSecond": 1.5,
        "processedRowsPerSecond": 2.5,
        "offsetsBehindLatest": 3,
        "lastCheckpoint": "2026-01-01T00:00:00.000Z",
        "error": "no topic",
    }


def test_status_and_metrics_over_http() -> None:
    registry = CollectorRegistry()
    Gauge("lag", "A lag.", registry=registry).set(7)
    with StatusServer(0, lambda: JobStatus.of("Running", QUERY, None), registry) as server:

        def get(path: str) -> tuple[str, str]:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
                return answer.headers["Content-Type"], answer.read().decode()

        kind, body = get("/status")
        assert (kind, json.loads(body)["batch"]) == ("application/json", 12)
        kind, body = get("/metrics")
        assert kind.startswith("text/plain")
        assert "lag 7.0" in body
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get("/other")
