"""What is known about each streaming query, from the events of Spark. Pure.

`query_listener` feeds it and exports the result. The lag of a source is the difference between `latestOffset` and
`endOffset` of its last progress, which Spark's own source for Kafka reports under the same three names. The Python API
of data sources has no way to report such metrics itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.base.types import TopicPartition


class Behind(NamedTuple):
    """Offsets that a source has not read yet, over its partitions."""

    minimum: int
    average: float
    maximum: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The last progress of one source of a query."""

    input_rows: int
    end: Mapping[TopicPartition, int]
    """The next offset to read, by partition; empty for a source without offsets of a topic."""
    behind: Behind | None


@dataclass(slots=True, kw_only=True)
class QueryState:
    """The state of one query. Values of the last progress are None before the first one."""

    query_id: str
    name: str | None
    running: bool = True
    batch_id: int | None = None
    input_rows_per_second: float | None = None
    processed_rows_per_second: float | None = None
    input_rows: int = 0
    """Input rows of all micro-batches since the listener was added."""
    batches: int = 0
    """Micro-batches since the listener was added."""
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    last_progress: str | None = None
    """Time of the last progress, as ISO 8601 in UTC."""
    last_seen_seconds: float | None = None
    """Time of the last progress or idle event, in seconds since 1970."""
    failures: int = 0
    error: str | None = None
    """Exception of the last run; None if it did not fail."""
    sources: tuple[SourceState, ...] = ()

    @property
    def label(self) -> str:
        """The name of the query, or its id."""
        return self.name or self.query_id

    def as_json(self) -> dict[str, Any]:
        """Return the state with the field names of Spark's progress."""
        lags = [source.behind for source in self.sources if source.behind is not None]
        return {
            "id": self.query_id,
            "name": self.name,
            "running": self.running,
            "batchId": self.batch_id,
            "numInputRows": self.input_rows,
            "inputRowsPerSecond": self.input_rows_per_second,
            "processedRowsPerSecond": self.processed_rows_per_second,
            "durationMs": dict(self.durations_ms),
            "timestamp": self.last_progress,
            "offsetsBehindLatest": sum(lag.total for lag in lags) if lags else None,
            "maxOffsetsBehindLatest": max(lag.maximum for lag in lags) if lags else None,
            "error": self.error,
        }


def offsets_of(value: object) -> dict[TopicPartition, int]:
    """Parse offsets in a progress: JSON text or its content. Anything else than offsets of topics is left out."""
    content = value
    if isinstance(value, str):
        try:
            content = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(content, Mapping):
        return {}
    return {
        TopicPartition(topic, int(number)): offset
        for topic, partitions in content.items()
        if isinstance(partitions, Mapping)
        for number, offset in partitions.items()
        if str(number).isdecimal() and type(offset) is int
    }


def behind(end: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Behind | None:
    """Return how far `end` is behind `latest`; None without a common partition."""
    lags = [max(0, latest[partition] - offset) for partition, offset in end.items() if partition in latest]
    if not lags:
        return None
    return Behind(min(lags), sum(lags) / len(lags), max(lags), sum(lags))


def source_state(progress: Mapping[str, Any]) -> SourceState:
    """Return the state of one source from its part of a progress."""
    end = offsets_of(progress.get("endOffset"))
    return SourceState(
        input_rows=int(progress.get("numInputRows") or 0),
        end=end,
        behind=behind(end, offsets_of(progress.get("latestOffset"))),
    )


def apply_progress(state: QueryState, progress: Mapping[str, Any], seen_seconds: float) -> None:
    """Enter a progress, as in the JSON of Spark's `StreamingQueryProgress`."""
    state.running = True
    state.name = progress.get("name") or state.name
    batch = int(progress["batchId"])
    if batch != state.batch_id or progress.get("numInputRows"):
        state.batches += 1
        state.input_rows += int(progress.get("numInputRows") or 0)
    state.batch_id = batch
    state.input_rows_per_second = progress.get("inputRowsPerSecond")
    state.processed_rows_per_second = progress.get("processedRowsPerSecond")
    state.durations_ms = {name: int(value) for name, value in (progress.get("durationMs") or {}).items()}
    state.last_progress = progress.get("timestamp")
    state.last_seen_seconds = seen_seconds
    state.sources = tuple(source_state(source) for source in progress.get("sources") or ())
