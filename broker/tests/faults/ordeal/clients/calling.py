"""How a client process is started, told what to do, and heard: a JSON object on its command line, one in a file.

`running` makes a `Client`; the client's module calls `options`, `told_to_stop` and `answer`. A client works until
SIGTERM, then brings to an end what it has begun, and tells what it did. It dies with the process that started it.
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
    """A client process failed; the message has its last words."""


class Client:
    """One client process."""

    def __init__(self, module: str, directory: Path, name: str, wanted: Mapping[str, Any]) -> None:
        """`name` is that of its log and its answer in the directory. Not started."""
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
        """Start it, from a thread that outlives it."""
        self._child.start()

    def check(self) -> None:
        """Raises `ClientError` when it has ended, which it must not do by itself."""
        if not self._child.running:
            raise ClientError(f"the client {self._child.name} {self._child.how_it_ended()}")

    def ask_to_stop(self) -> None:
        """SIGTERM; it goes on until its work is done."""
        self._child.send(signal.SIGTERM)

    def result(self, timeout_seconds: float) -> dict[str, Any]:
        """Wait for its end; what it told. Raises `ClientError`."""
        if not self._child.wait(timeout_seconds):
            raise ClientError(f"the client {self._child.name} did not end within {timeout_seconds:g} s")
        if self._child.exit_code != 0:
            raise ClientError(f"the client {self._child.name} {self._child.how_it_ended()}")
        told: dict[str, Any] = json.loads(self._answer.read_text(encoding="utf-8"))
        return told

    def kill(self) -> None:
        """End it at once. Idempotent."""
        self._child.kill()


def options() -> dict[str, Any]:
    """What this process is to do."""
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    return wanted


def answer(wanted: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """Tell what this process did."""
    Path(wanted["answer"]).write_text(json.dumps(told), encoding="utf-8")


def told_to_stop(stop: Callable[[], None]) -> None:
    """Call a function at SIGTERM, in a process without an event loop."""
    signal.signal(signal.SIGTERM, lambda number, frame: stop())
