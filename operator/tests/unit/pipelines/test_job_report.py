"""Reports of drivers: good ones are read, and nothing else harms."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.pipelines.job_report import MAX_COUNT, JobReport, JobReportError

GOOD = {
    "phase": "Running",
    "batch": 12,
    "inputRowsPerSecond": 1.25,
    "processedRowsPerSecond": 7.5,
    "offsetsBehindLatest": 3,
    "lastCheckpoint": "2026-01-01T00:00:00Z",
    "error": None,
}


def test_a_report_is_read() -> None:
    assert JobReport.read(json.dumps(GOOD).encode()) == JobReport(
        batch=12, input_rate=1.2, rate=7.5, lag=3, last_checkpoint=datetime(2026, 1, 1, tzinfo=UTC), error=""
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b"[]", b"7", b"\xff", b"[" * 60_000, b'{"batch": ' + b"9" * 10_000 + b"}", b'{"a":' * 9_000],
)
def test_what_is_no_report(content: bytes) -> None:
    with pytest.raises(JobReportError):
        JobReport.read(content)


@pytest.mark.parametrize("value", [-1, True, "3", [], {}, 10**30, float("nan"), float("inf"), None])
def test_numbers_that_are_none_are_ignored(value: Any) -> None:
    wrong = {name: value for name in GOOD if name not in ("phase", "lastCheckpoint", "error")}
    assert JobReport.read(json.dumps(wrong).encode()) == JobReport()


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(GOOD, values)))
def test_any_object_is_read_within_bounds(document: dict[str, Any]) -> None:
    found = JobReport.read(json.dumps(document).encode())
    for number in (found.batch, found.lag, found.rate, found.input_rate):
        assert number is None or 0 <= number <= MAX_COUNT
    assert found.error.isprintable()
