"""Measurements of running processes, read from /proc, and of the page cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from comparison.page_cache import cached_share, drop, log_files
from comparison.processes import Meter, usage, with_descendants


def test_a_child_counts_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in with_descendants([os.getpid()])
        child.communicate(b"\n")
    assert child.pid not in with_descendants([os.getpid()])


def test_a_process_that_ended_has_no_usage() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert usage(child.pid) is None


def test_a_meter_counts_only_what_happens_while_it_is_open() -> None:
    sum(range(3_000_000))
    with Meter(lambda: [os.getpid()]) as meter:
        pass
    figures = meter.figures()
    mine = usage(os.getpid())
    assert mine is not None
    assert figures["cpu_s"] < mine.cpu_ticks / os.sysconf("SC_CLK_TCK")
    assert 0 < figures["rss_after_mb"] <= figures["rss_max_mb"]


def test_a_process_that_starts_meanwhile_counts_in_full() -> None:
    pids: list[int] = []
    command = [sys.executable, "-c", "sum(range(5_000_000)); print(); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        with Meter(lambda: pids) as meter:
            child.stdout.readline()
            pids.append(child.pid)
        used = usage(child.pid)
        child.communicate(b"\n")
    assert used is not None
    assert meter.figures()["cpu_s"] > 0


def test_only_segments_are_looked_for_and_an_empty_one_is_not_cached(tmp_path: Path) -> None:
    segment = tmp_path / "t-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(b"")
    (tmp_path / "t-0" / "00000000000000000000.index").write_bytes(b"i")
    assert log_files([tmp_path]) == [segment]
    assert cached_share([segment]) == 0.0


def test_what_was_just_written_is_cached(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(bytes(1 << 20))
    assert cached_share([path]) == 1.0
    drop([path])
    assert path.read_bytes() == bytes(1 << 20)
