"""Compares the metrics of the broker's processes with the values of the system."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector

from odradek.metrics import process
from odradek.metrics.process import IdleShare, ProcessTree, ProcessTreeCollector, open_descriptors, process_ids

WORKER = """
import os, sys
held = [open("/dev/null") for _ in range(50)]
with open(sys.argv[1], "wb") as file:
    file.write(bytes(1 << 20))
    os.fsync(file.fileno())
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child process that has open files and has written a megabyte."""
    made = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path / "file")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert made.stdin is not None
    assert made.stdout is not None
    assert made.stdout.readline() == b"ready\n"
    yield made
    made.stdin.close()
    made.stdout.close()
    made.wait()


def test_workers_are_among_the_processes(worker: subprocess.Popen[bytes]) -> None:
    assert {os.getpid(), worker.pid} <= set(process_ids())


def test_descriptors_are_summed(worker: subprocess.Popen[bytes]) -> None:
    own = len(os.listdir("/proc/self/fd"))
    assert open_descriptors() >= own + 50
    registry = CollectorRegistry()
    ProcessTreeCollector(registry=registry)
    counts = registry.get_sample_value("process_open_fds")
    assert counts is not None
    assert counts >= own + 50
    assert registry.get_sample_value("process_max_fds")


def test_only_the_number_of_descriptors_differs_from_the_library() -> None:
    names = [family.name for family in ProcessCollector(registry=None).collect()]
    assert [family.name for family in ProcessTreeCollector(registry=None).collect()] == names


def test_what_an_ended_worker_wrote_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, counts = ProcessTree(), {1: 100, 2: 30}
    monkeypatch.setattr(process, "process_ids", lambda: list(counts))
    monkeypatch.setattr(process, "_io", lambda number, key: counts[number] if key == "write_bytes" else 0)
    assert tree.disk_bytes("write_bytes") == 130
    counts[2] = 40
    assert tree.disk_bytes("write_bytes") == 140
    del counts[2]
    assert tree.disk_bytes("write_bytes") == 140
    counts[2] = 5  # another process with the same id
    assert tree.disk_bytes("write_bytes") == 145
    counts[2] = 3  # and another between two readings
    assert tree.disk_bytes("write_bytes") == 148
    assert tree.disk_bytes("read_bytes") == 0


def test_what_was_written_is_read_from_the_system(worker: subprocess.Popen[bytes]) -> None:
    tree = ProcessTree()
    alone = sum(int(line.split()[1]) for line in io_of(worker.pid) if line.startswith("write_bytes"))
    assert tree.disk_bytes("write_bytes") >= alone


def io_of(number: int) -> list[str]:
    return Path(f"/proc/{number}/io").read_text(encoding="ascii").splitlines()


def test_an_idle_share_is_a_share() -> None:
    share = IdleShare()
    assert share.read() == 1.0
    share._wall -= 2.0
    assert 0.0 <= share.read() <= 1.0
    assert share.last == share.read()
