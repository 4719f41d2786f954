"""Starts client processes. Options are a JSON object on the command line, the result is a JSON object in a file.

`running` creates a `Client`. The module of the client calls `options`, `told_to_stop` and `answer`. A client works
until SIGTERM, completes its pending requests, and writes its result. It ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from odradek.base.errors import OdradekError
from odradek_operator.embedded.child import ChildProcess

FAULTS_FOLDER: Final = Path(__file__).resolve().parents[2]


class ClientError(OdradekError):
    """A client process failed. The message has the end of its log."""


class Client:
    """One client process."""

    def __init__(self, module: str, directory: Path, name: str, wanted: Mapping[str, Any]) -> None:
        """The log and the result are files with this name in the directory. `start` starts the process."""
        self._answer: Final = directory / f"{name}.json"
        command = [
            sys.executable,
            "-m",
            f"ordeal.clients.{module}",
            json.dumps({**wanted, "answer": str(self._answer)}),
        ]
        paths = [str(FAULTS_FOLDER), os.environ.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._child: Final = ChildProcess(name, command, directory / f"{name}.log", environment=environment)

    def start(self) -> None:
        """Start the process. The calling thread must live longer than the process."""
        self._child.start()

    def check(self) -> None:
        """Raise `ClientError` if the process has exited, because it must run until `ask_to_stop`."""
        if not self._child.running:
            raise ClientError(f"the client {self._child.name} {self._child.how_it_ended()}")

    def ask_to_stop(self) -> None:
        """Send SIGTERM. The process exits when its pending work is complete."""
        self._child.send(signal.SIGTERM)

    def result(self, timeout_seconds: float) -> dict[str, Any]:
        """Wait until the process exits, and return its result. Raises `ClientError` if it failed or still runs."""
        if not self._child.wait(timeout_seconds):
            raise ClientError(f"the client {self._child.name} did not exit within {timeout_seconds:g} s")
        if self._child.exit_code != 0:
            raise ClientError(f"the client {self._child.name} {self._child.how_it_ended()}")
        content: dict[str, Any] = json.loads(self._answer.read_text(encoding="utf-8"))
        return content

    def kill(self) -> None:
        """Kill the process. Idempotent."""
        self._child.kill()


def options() -> dict[str, Any]:
    """Return the options of this process."""
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    return wanted


def answer(wanted: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Write the result of this process."""
    Path(wanted["answer"]).write_text(json.dumps(content), encoding="utf-8")


def told_to_stop(stop: Callable[[], None]) -> None:
    """Call a function on SIGTERM, in a process without an event loop."""
    signal.signal(signal.SIGTERM, lambda number, frame: stop())
