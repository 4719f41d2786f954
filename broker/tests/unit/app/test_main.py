"""The properties of a broker process, and what it says when they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.app.main import load, run
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
