"""Fixtures of the log tests: a disk in memory, a manual clock, and a host."""

from __future__ import annotations

import pytest

from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import RecordingHost
from odradek_testkit.loop import ManualClock


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def host(files: MemoryFiles) -> RecordingHost:
    return RecordingHost(files)
