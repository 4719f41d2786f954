"""Starts client processes. Options are a JSON object on the command line, figures a JSON object on standard output.

The runner calls `run` or `started`. The module of the client calls `options` and `answer`.
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
    """A client process failed. The message has the end of its standard error."""


def run(module: str, wanted: Mapping[str, Any], *, timeout: float) -> dict[str, float]:
    """Run a client of this package until it exits, and return its figures."""
    result = subprocess.run(
        _command(module, wanted), capture_output=True, text=True, env=_environment(), timeout=timeout, check=False
    )
    return _figures(module, result.returncode, result.stdout, result.stderr)


class Started:
    """A client that runs in the background and reads lines from its standard input."""

    def __init__(self, module: str, process: subprocess.Popen[str]) -> None:
        self._module = module
        self._process = process

    def tell(self, word: str) -> None:
        """Send a line to its standard input."""
        assert self._process.stdin is not None, "the process has a pipe"
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, float]:
        """Close its standard input, wait until it exits, and return its figures."""
        try:
            output, complaints = self._process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise ClientError(f"client {self._module} did not exit within {_END_SECONDS:g} s") from error
        return _figures(self._module, self._process.returncode, output, complaints)


@contextmanager
def started(module: str, wanted: Mapping[str, Any]) -> Iterator[Started]:
    """Start a client. Kill it at the end of the block if it still runs."""
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
    """Return the options from the runner."""
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    return wanted


def answer(figures: Mapping[str, float]) -> None:
    """Return the figures to the runner."""
    sys.stdout.write(json.dumps(figures))


def _command(module: str, wanted: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-m", f"comparison.clients.{module}", json.dumps(wanted)]


def _environment() -> dict[str, str]:
    paths = [str(BENCH_FOLDER), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _figures(module: str, code: int, output: str, complaints: str) -> dict[str, float]:
    if code != 0:
        raise ClientError(f"client {module} exited with code {code}: {complaints[-2000:]}")
    return {str(name): float(value) for name, value in json.loads(output).items()}
