"""Runs the job of a Pipeline resource from its specification. A `spark-submit` application.

It is a streaming query in both modes: a batch pipeline ends when it has read what was there at its start. The
checkpoint has the offsets, so a job that starts again continues where the last one ended. Format of the file and of
`/status`: docs/design/0029.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from odradek.base.errors import ConfigError
from pyspark_odradek.observation.query_listener import QueryListener
from pyspark_odradek.pipelines import pipeline_spec
from pyspark_odradek.pipelines.application import OpenSession, job_parser, run, session
from pyspark_odradek.pipelines.job_status import JobStatus, StatusServer
from pyspark_odradek.pipelines.pipeline_query import check_source, target_writer, transformed, triggered
from pyspark_odradek.pipelines.pipeline_spec import PipelineSpec
from pyspark_odradek.pipelines.stream_runs import QueryTotals

TERMINATION_LOG: Final = "/dev/termination-log"
_TERMINATION_BYTES: Final = 4096
"""Kubernetes shows at most so many bytes of a container's termination message."""

_DESCRIPTION: Final = """Run a pipeline: topics, a transformation in SQL, and files or a topic as the target.

A batch pipeline reads everything that is new since its last run, and ends; a streaming pipeline runs until it is
stopped. It continues from its checkpoint after any kind of end. The operator runs it for a Pipeline resource."""

_EPILOG: Final = """example:
  spark-submit pipeline_job.py --spec pipeline.json --status-port 9405

  {"name": "late-departures", "bootstrapServers": "127.0.0.1:9092",
   "source": {"topics": ["departures"], "format": "json", "schema": "carrier STRING, dep_delay DOUBLE"},
   "transformation": {"sql": "SELECT value.*, to_date(timestamp) AS date FROM source WHERE value.dep_delay > 60"},
   "target": {"path": "s3a://bucket/late", "partitionBy": ["date"]},
   "mode": {"streaming": {"triggerSeconds": 10}}, "checkpoint": "s3a://bucket/late-checkpoint"}"""


def main(argv: list[str] | None = None, *, open_session: OpenSession = session) -> int:
    """Run the application and return its exit code."""
    parser = job_parser(_DESCRIPTION, _EPILOG)
    parser.add_argument("--spec", required=True, type=Path, metavar="FILE", help="the specification, as JSON")
    parser.add_argument("--status-port", type=int, metavar="PORT", help="HTTP port of /status and /metrics")
    parser.add_argument(
        "--termination-log",
        default=TERMINATION_LOG,
        type=Path,
        metavar="FILE",
        help="file for the message of a failure, if it exists (default: %(default)s)",
    )
    arguments = parser.parse_args(argv)
    job = PipelineJob()

    def failed(message: str) -> None:
        job.fail(message)
        if arguments.termination_log.exists():
            arguments.termination_log.write_bytes(message.encode()[:_TERMINATION_BYTES])

    def served() -> dict[str, Any]:
        with job.served(arguments.status_port):
            return job.run(_read(arguments.spec), open_session)

    return run(
        served,
        lambda result: f"The pipeline has read {result['rows']:,} records in {result['seconds']} s.",
        failed=failed,
    )


def _read(path: Path) -> PipelineSpec:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--spec {path} cannot be read: {error.strerror}") from None
    return pipeline_spec.parse(text)


class PipelineJob:
    """A pipeline that runs, and its status."""

    def __init__(self) -> None:
        """Nothing runs before `run`."""
        self._lock = threading.Lock()
        self._listener = QueryListener()
        self._name: str | None = None
        self._error: str | None = None
        self._succeeded = False

    @contextmanager
    def served(self, port: int | None) -> Iterator[StatusServer | None]:
        """Serve `/status` and `/metrics` in a `with` block, if there is a port."""
        server = None if port is None else StatusServer(port, self.status, self._listener.registry)
        with nullcontext() if server is None else server:
            yield server

    def status(self) -> JobStatus:
        """Return the current status. Any thread may call it."""
        with self._lock:
            name, error = self._name, self._error
            phase: Any = "Failed" if error is not None else "Succeeded" if self._succeeded else "Running"
        query = {} if name is None else self._listener.snapshot().get(name, {})
        return JobStatus.of(phase, query, error)

    def fail(self, message: str) -> None:
        """Set the status to failed."""
        with self._lock:
            self._error = message

    def run(self, spec: PipelineSpec, open_session: OpenSession) -> dict[str, Any]:
        """Run the pipeline until its query ends. Raises the errors of the options and of Spark."""
        began = time.monotonic()
        check_source(spec)
        with self._lock:
            self._name = spec.name
        with open_session(spec.name) as spark:
            totals = QueryTotals()
            spark.streams.addListener(self._listener)
            spark.streams.addListener(totals)
            try:
                query = triggered(target_writer(spec, transformed(spark, spec)), spec).start()
                query.awaitTermination()
                result = totals.result(str(query.id))
            finally:
                spark.streams.removeListener(totals)
                spark.streams.removeListener(self._listener)
        with self._lock:
            self._succeeded = True
        return {**result, "seconds": round(time.monotonic() - began, 3)}


if __name__ == "__main__":
    sys.exit(main())
