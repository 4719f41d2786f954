"""The properties of a broker process, and what it says when they are wrong."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.app.main import GARBAGE_THRESHOLDS, load, look_for_garbage_less_often, run, settle_garbage_collection
from odradek.base.errors import ConfigError


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nlog.dirs=/data\n", encoding="utf-8")
    assert load(str(path), ["broker.id=2", "num.partitions = 3"]) == {
        "broker.id": "2",
        "log.dirs": "/data",
        "num.partitions": "3",
    }


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "server.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"server\.properties"):
        load(str(path), [])


@pytest.mark.parametrize(
    ("content", "overrides"),
    [(None, []), ("", []), ("broker.id=1\nzookeeper.connect=x\n", ["num.partitions=none"]), ("", ["novalue"])],
)
def test_what_is_wrong_ends_the_process(tmp_path: Path, content: str | None, overrides: list[str]) -> None:
    path = tmp_path / "server.properties"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert run(str(path), overrides) == 1


class Cycle:
    """Garbage that only the collector finds."""

    freed = 0

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        Cycle.freed += 1


@pytest.fixture
def collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("collector")
def test_what_a_started_process_has_is_not_looked_through_again_but_what_comes_later_is() -> None:
    Cycle.freed = 0
    Cycle()
    stays = [[number] for number in range(1000)]
    look_for_garbage_less_often()
    settle_garbage_collection()
    assert Cycle.freed == 1, "garbage of the start is not kept"
    assert gc.get_freeze_count() > len(stays)
    assert not any(one is stays for one in gc.get_objects())
    assert gc.get_threshold() == GARBAGE_THRESHOLDS
    Cycle()
    gc.collect()
    assert Cycle.freed == 2
