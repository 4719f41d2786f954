"""The status of a pipeline's job: what `/status` answers, and the HTTP server for it. Format: docs/design/0029."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

Phase = Literal["Running", "Succeeded", "Failed"]
_REQUEST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The state of a job. Values of micro-batches are None before the first one."""

    phase: Phase
    batch: int | None = None
    input_rows_per_second: float | None = None
    processed_rows_per_second: float | None = None
    offsets_behind_latest: int | None = None
    last_checkpoint: str | None = None
    error: str | None = None

    @classmethod
    def of(cls, phase: Phase, query: Mapping[str, Any], error: str | None) -> JobStatus:
        """Return the status from the state of the query in `QueryListener.snapshot`, which may be empty."""
        return cls(
            phase=phase,
            batch=query.get("batchId"),
            input_rows_per_second=query.get("inputRowsPerSecond"),
            processed_rows_per_second=query.get("processedRowsPerSecond"),
            offsets_behind_latest=query.get("offsetsBehindLatest"),
            # A progress is reported after the checkpoint of its micro-batch; it has the time of the trigger.
            last_checkpoint=query.get("timestamp"),
            error=error,
        )

    def to_json(self) -> str:
        """Return the answer of `/status`."""
        return json.dumps(
            {
                "phase": self.phase,
                "batch": self.batch,
                "inputRowsPerSecond": self.input_rows_per_second,
                "processedRowsPerSecond": self.processed_rows_per_second,
                "offsetsBehindLatest": self.offsets_behind_latest,
                "lastCheckpoint": self.last_checkpoint,
                "error": self.error,
            }
        )


class StatusServer:
    """Serves `/status` and `/metrics` from threads of its own, until the `with` block ends."""

    def __init__(self, port: int, status: Callable[[], JobStatus], registry: CollectorRegistry) -> None:
        """`port` 0 chooses a free port. Raises `OSError` if the port is in use."""

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_SECONDS

            def do_GET(self) -> None:
                if self.path == "/status":
                    self._answer(HTTPStatus.OK, "application/json", status().to_json().encode())
                elif self.path == "/metrics":
                    encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                    self._answer(HTTPStatus.OK, content_type, encode(registry))
                else:
                    self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there are /status and /metrics\n")

            def _answer(self, code: HTTPStatus, content_type: str, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                """Requests of probes and of Prometheus are not worth a line."""

        self._server = ThreadingHTTPServer(("", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="status", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_port)

    def __enter__(self) -> StatusServer:
        """Start to answer."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Close the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
