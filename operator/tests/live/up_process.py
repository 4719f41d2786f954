"""`odradek up` as a child process of a test, which reads its events."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.testing.free_ports import free_ports

DEADLINE_SECONDS = 120.0
CLUSTER = "{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: demo}, spec: {brokers: {replicas: 2}}}\n"


def topic(partitions: int, deletion: str = "Delete") -> str:
    spec = f"{{cluster: demo, partitions: {partitions}, replicas: 2, deletion: {deletion}}}"
    return f"---\n{{apiVersion: odradek.dev/v1, kind: Topic, metadata: {{name: orders}}, spec: {spec}}}\n"


class Up:
    """A child process that runs `odradek up --output json`."""

    def __init__(self, folder: Path, *more: str) -> None:
        zookeeper, base, metrics, monitoring = self.ports = rows()
        places = ["-f", str(folder / "manifests"), "--data-dir", str(folder / "data"), "--output", "json"]
        ports = ["--zookeeper-port", str(zookeeper), "--base-port", str(base), "--metrics-base-port", str(metrics)]
        ports += ["--monitoring-port", str(monitoring)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "odradek.cli.main", "up", *places, *ports, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.events: list[dict[str, Any]] = []

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read events until one is wanted, and return it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            if wanted(event):
                return dict(event)
        assert self.process.stderr is not None
        raise AssertionError(f"it never came; after {self.events}: {self.process.stderr.read()}")

    def end(self) -> tuple[int, str]:
        """Wait for the end of the process, and return its exit code and standard error."""
        _, errors = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, errors


def rows() -> tuple[int, int, int, int]:
    """Return four free ports, each of which is followed by two free ports."""
    found: list[int] = []
    while len(found) < 4:
        (port,) = free_ports(1)
        if all(abs(port - other) > 3 for other in found) and _free(port + 1) and _free(port + 2):
            found.append(port)
    return found[0], found[1], found[2], found[3]


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def is_ready(event: dict[str, Any]) -> bool:
    return bool(event["event"] == "ready")


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
