"""Child processes of the demonstration: the cluster and the Spark jobs.

Each child writes events as JSON lines. Invariant: when the `with` block of a child ends, the child has ended: it is
terminated, and killed with all its descendants if it does not end in time.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from odradek.base.errors import OdradekError

STOP_SECONDS: Final = 60.0
_TAIL_LINES: Final = 12

ChildEvent = Mapping[str, Any]


class ChildError(OdradekError):
    """A child process failed. The message has its last error and the path of its log."""


class Child:
    """A process that writes JSON lines to standard output and everything else to a log file."""

    def __init__(self, name: str, command: Sequence[str], log: Path, *, environment: Mapping[str, str]) -> None:
        """Prepare a child; the `with` block starts it. It has its own session, so Ctrl-C only reaches the parent."""
        self._name = name
        self._command = list(command)
        self._log = log
        self._environment = dict(environment)
        self._events: queue.Queue[ChildEvent | None] = queue.Queue()

    def __enter__(self) -> Self:
        """Start the process."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )
        stdout = self._process.stdout
        assert stdout is not None
        self._reader = threading.Thread(target=self._read, args=(stdout,), name=self._name, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop the process."""
        self.stop()

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout, self._log.open("ab") as log:
            for line in stdout:
                event = _parse(line)
                if event is None:
                    log.write(line)
                else:
                    self._events.put(event)
        self._events.put(None)

    def next_event(self, timeout_seconds: float) -> ChildEvent | None:
        """Return the next event, or None at the end of the process. Raises `ChildError` on a time-out."""
        try:
            return self._events.get(timeout=timeout_seconds)
        except queue.Empty:
            raise ChildError(
                f"{self._name} sent no event for {timeout_seconds:.0f} s; its log is {self._log}"
            ) from None

    def until(
        self, kind: str, on_other: Callable[[ChildEvent], None], *, timeout_seconds: float, silence_seconds: float
    ) -> ChildEvent:
        """Return the next event of `kind`; call `on_other` with all events before it.

        Raises `ChildError` if the process ends before it, sends no event for `silence_seconds`, or takes too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while (left := deadline - time.monotonic()) > 0:
            event = self.next_event(min(left, silence_seconds))
            if event is None:
                raise self.failure()
            if event.get("event") == kind:
                return event
            on_other(event)
        raise ChildError(f"{self._name} took more than {timeout_seconds:.0f} s; its log is {self._log}")

    def failure(self) -> ChildError:
        """Return an error with the exit code and the last error message of the process."""
        code = self._process.wait()
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        # Both children print errors for people with this prefix. Without one, show the end of the log.
        messages = [line for line in lines if line.lower().startswith("error: ")]
        message = messages[-1][len("error: ") :] if messages else "\n".join(lines[-_TAIL_LINES:])
        return ChildError(f"{self._name} ended with exit code {code}: {message}\nIts log is {self._log}")

    def wait(self) -> None:
        """Wait until the process ends. Raises `ChildError` if its exit code is not 0."""
        if self._process.wait() != 0:
            raise self.failure()

    def stop(self) -> None:
        """Terminate the process, wait, and kill it with its descendants if it takes too long. Idempotent."""
        if self._process.poll() is None:
            # Not SIGINT: the children of a background job of a shell ignore it.
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._kill_all()
        self._kill_all()
        self._process.wait()
        self._reader.join()

    def _kill_all(self) -> None:
        """Kill all remaining processes of the session; usually there are none."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _parse(line: bytes) -> ChildEvent | None:
    if not line.startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def cluster(arguments: Sequence[str], log: Path) -> Child:
    """Return the child that runs `odradek up` with `arguments`."""
    command = [sys.executable, "-c", "from odradek.cli.main import main; main()", "up", "--output", "json", *arguments]
    return Child("The cluster", command, log, environment=os.environ)


def spark_job(script: Path, arguments: Sequence[str], log: Path, *, cores: int, scratch: Path) -> Child:
    """Return the child that runs an application on a local Spark, with this interpreter for driver and workers."""
    submit = Path(sys.executable).with_name("spark-submit")
    if not submit.exists():
        raise ChildError(f"spark-submit is not installed beside {sys.executable}: run pip install 'odradek[spark]'.")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    command = [str(submit), "--master", f"local[{cores}]"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return Child(f"The Spark job {script.stem}", [*command, str(script), *arguments], log, environment=environment)


def check_java() -> None:
    """Raise `ChildError` if Java is not installed; ZooKeeper and Spark need it."""
    if shutil.which("java") is None:
        raise ChildError("ZooKeeper and Spark need Java 17 or newer, but there is no 'java' on the PATH.")
