"""The classes of MirrorMaker 2, and the programs that call them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing.in_process import InProcessBroker
from odradek_testkit.interop.apache import compile_java, mirror_jars

SOURCES = ("MirrorRecords.java", "MirrorReader.java")


@pytest.fixture(scope="session")
def mirrormaker(request: pytest.FixtureRequest) -> Path:
    """The jars of MirrorMaker 2."""
    return mirror_jars("3.9.1", Path(request.config.rootpath) / ".interop")


@pytest.fixture(scope="session")
def programs(mirrormaker: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled programs."""
    folder = tmp_path_factory.mktemp("programs")
    java = Path(__file__).parents[1] / "java"
    compile_java(mirrormaker, [java / name for name in SOURCES], folder)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    """The address of a target that no other test uses."""
    broker = InProcessBroker(tmp_path / "target")
    try:
        broker.start()
        yield broker.bootstrap
    finally:
        broker.close()
