"""How a client process is started, told what to do, and heard: one JSON object on its command line, one on its output.

The runner calls `run` or `started`; the client's module calls `options` and `answer`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

BENCH_FOLDER: Final = Path(__file__).resolve().parents[2]
_END_SECONDS: Final = 30.0


class ClientError(RuntimeError):
    """A client process failed; the message has the end of what it said."""


def run(module: str, wanted: Mapping[str, Any], *, timeout: float) -> dict[str, float]:
    """Run a client of this package to its end and return its figures."""
    result = subprocess.run(
        _command(module, wanted), capture_output=True, text=True, env=_environment(), timeout=timeout, check=False
    )
    return _figures(module, result.returncode, result.stdout, result.stderr)


class Started:
    """A client that runs beside something else and listens to lines on its input."""

    def __init__(self, module: str, process: subprocess.Popen[str]) -> None:
        self._module = module
        self._process = process

    def tell(self, word: str) -> None:
        """Send a line."""
        assert self._process.stdin is not None, "made with a pipe"
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, float]:
        """Close its input and return its figures."""
        try:
            told, complaints = self._process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise ClientError(f"{self._module} did not end") from error
        return _figures(self._module, self._process.returncode, told, complaints)


@contextmanager
def started(module: str, wanted: Mapping[str, Any]) -> Iterator[Started]:
    """A client that runs; killed when it has not ended by then."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        _command(module, wanted), stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=_environment()
    )
    try:
        yield Started(module, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def options() -> dict[str, Any]:
    """What the runner wants of this process."""
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    return wanted


def answer(figures: Mapping[str, float]) -> None:
    """Tell the runner."""
    sys.stdout.write(json.dumps(figures))


def _command(module: str, wanted: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-m", f"comparison.clients.{module}", json.dumps(wanted)]


def _environment() -> dict[str, str]:
    paths = [str(BENCH_FOLDER), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _figures(module: str, code: int, told: str, complaints: str) -> dict[str, float]:
    if code != 0:
        raise ClientError(f"{module} ended with {code}: {complaints[-2000:]}")
    return {str(name): float(value) for name, value in json.loads(told).items()}
