"""The listener of streaming queries: metrics for Prometheus, a snapshot, and commits of their progress.

Spark calls it in a thread of the driver's Python process, in which it waits for nothing: commits are made by another
thread, and a listener that fails would only be logged by Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_odradek.observation.progress_commits import ProgressCommits
from pyspark_odradek.observation.query_metrics import QueryCollector, QueryTable
from pyspark_odradek.observation.query_states import QueryState, apply_progress


class QueryListener(StreamingQueryListener):
    """Exports the metrics of all streaming queries of a Spark session.

        spark.streams.addListener(QueryListener(port=9405))

    With `progress`, it also commits the offsets of each finished micro-batch to the consumer group that is named after
    the query, so that every tool for consumer lag shows the query.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        address: str = "0.0.0.0",
        registry: CollectorRegistry | None = None,
        progress: Mapping[str, str] | ProgressCommits | None = None,
        now_seconds: Callable[[], float] = time.time,
    ) -> None:
        """`port`: an HTTP port for `/metrics`, 0 for a free one, None for none. `registry`: where the metrics are
        registered, by default a new registry.

        `progress`: the options of the source: its `kafka.` options or `configFile`, and optionally `progressGroup`.
        Raises `ConfigError` if one of them is invalid, and `OSError` if the port is in use.
        """
        self.registry = CollectorRegistry() if registry is None else registry
        self._table = QueryTable()
        self._labels: dict[str, str] = {}
        self._now_seconds = now_seconds
        self._commits = ProgressCommits.of(progress) if isinstance(progress, Mapping) else progress
        self.registry.register(QueryCollector(self._table))
        self._server = None if port is None else start_http_server(port, addr=address, registry=self.registry)

    @property
    def port(self) -> int | None:
        """The HTTP port of the metrics; None without a server."""
        return None if self._server is None else int(self._server[0].server_port)

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Return the latest state of each query, by its name or id.

        The fields are those of `StreamingQueryProgress` in JSON where Spark has them (`id`, `name`, `batchId`,
        `inputRowsPerSecond`, `processedRowsPerSecond`, `durationMs`, `timestamp`); `numInputRows` is the total since
        the start. `running`, `error`, `offsetsBehindLatest` and `maxOffsetsBehindLatest` are added. Values are None
        until they are known.
        """
        with self._table.lock:
            return {label: state.as_json() for label, state in self._table.states.items()}

    def close(self) -> None:
        """Stop the HTTP server, and wait until the last commit is made. The listener must not be used afterwards."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None
        if self._commits is not None:
            self._commits.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Enter a query that starts. A query that starts again keeps its totals."""
        state = self._state(str(event.id), event.name)
        with self._table.lock:
            state.running, state.error = True, None

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Enter a finished micro-batch, and commit its offsets."""
        progress = json.loads(event.progress.json)
        state = self._state(str(event.progress.id), event.progress.name)
        with self._table.lock:
            apply_progress(state, progress, self._now_seconds())
            ends = [source.end for source in state.sources]
        if self._commits is not None:
            offsets = {partition: offset for end in ends for partition, offset in end.items()}
            self._commits.finished(offsets, query=state.label, query_id=state.query_id, batch_id=state.batch_id)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Note that the query waits for data."""
        state = self._state(str(event.id), None)
        with self._table.lock:
            state.last_seen_seconds = self._now_seconds()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Note that the query has ended, and its exception."""
        state = self._state(str(event.id), None)
        with self._table.lock:
            state.running = False
            if event.exception is not None:
                state.failures += 1
                state.error = event.exception

    def _state(self, query_id: str, name: str | None) -> QueryState:
        """Return the state of a query, under its name if it has one."""
        with self._table.lock:
            label = self._labels.get(query_id)
            if label is None:
                label = self._labels[query_id] = name or query_id
            state = self._table.states.get(label)
            if state is None or state.query_id != query_id:
                # A query of the same name with another checkpoint takes the place of the earlier one.
                state = self._table.states[label] = QueryState(query_id=query_id, name=name)
            return state
