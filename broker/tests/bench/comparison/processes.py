"""Measures CPU time and memory of broker processes and their descendants, from /proc.

`running` uses it for each run. A child that has ended is included, because the kernel adds its CPU time to that of its
parent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
SAMPLE_SECONDS: Final = 0.25
MEGABYTE: Final = 1 << 20

# Positions in /proc/PID/stat after the name of the command, see proc_pid_stat(5).
_OWN_TICKS: Final = slice(11, 13)
_WAITED_TICKS: Final = slice(13, 15)
_START: Final = 19
_RESIDENT_PAGES: Final = 21


class Usage(NamedTuple):
    """The resources that a process has used since its start."""

    started: int
    """Start in ticks since boot, which distinguishes processes with the same id."""
    cpu_ticks: int
    resident_bytes: int


def usage(pid: int) -> Usage | None:
    """Return the usage of a process; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = [int(word) for word in text.rpartition(")")[2].split()[1:]]
    fields.insert(0, 0)  # The state is a letter and keeps its position.
    ticks = sum(fields[_OWN_TICKS]) + sum(fields[_WAITED_TICKS])
    return Usage(fields[_START], ticks, fields[_RESIDENT_PAGES] * PAGE_BYTES)


def with_descendants(pids: Iterable[int]) -> list[int]:
    """Return the running ones of the processes and their descendants."""
    found: list[int] = []
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return children
    for thread in threads:
        try:
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            continue
        children += map(int, text.split())
    return children


class Meter:
    """Measures processes while it is open: `with Meter(pids) as meter: ...`, then `figures`.

    `pids` is called for every sample, because a scenario may restart its brokers.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._before: dict[int, Usage] = {}
        self._last: dict[int, Usage] = {}
        self._most_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, name="meter", daemon=True)

    def __enter__(self) -> Self:
        self._before = dict(self._last) if self._look() else {}
        self._most_bytes = sum(one.resident_bytes for one in self._before.values())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def figures(self) -> dict[str, float]:
        """Return CPU seconds, maximum memory and last memory of the measured time."""
        ticks = 0
        for pid, now in self._last.items():
            before = self._before.get(pid)
            known = before is not None and before.started == now.started
            ticks += now.cpu_ticks - (before.cpu_ticks if known and before is not None else 0)
        return {
            "cpu_s": ticks / TICKS_PER_SECOND,
            "rss_max_mb": self._most_bytes / MEGABYTE,
            "rss_after_mb": sum(one.resident_bytes for one in self._last.values()) / MEGABYTE,
        }

    def _look(self) -> bool:
        """Take a sample. Returns whether any process was running."""
        found = {pid: used for pid in with_descendants(self._pids()) if (used := usage(pid)) is not None}
        self._last = found
        self._most_bytes = max(self._most_bytes, sum(one.resident_bytes for one in found.values()))
        return bool(found)

    def _sample_until_stopped(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._look()
