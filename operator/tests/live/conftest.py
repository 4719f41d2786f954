"""Fixtures of the tests that run `odradek up`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .up_process import CLUSTER, Up, topic


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "cluster.yaml").write_text(CLUSTER + topic(2))
    return tmp_path


@pytest.fixture
def up(folder: Path) -> Iterator[Callable[..., Up]]:
    running: list[Up] = []

    def start(*more: str) -> Up:
        running.append(Up(folder, *more))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        one.process.communicate()
