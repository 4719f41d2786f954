"""The state of a process's main thread, from files as /proc has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.app.disk_wait import disk_wait


def process(proc: Path, state: str, *, name: str = "python3", wchan: str | None = None) -> Path:
    """Write the files of process 7."""
    folder = proc / "7"
    folder.mkdir()
    (folder / "stat").write_text(f"7 ({name}) {state} 1 7 7 0 -1 4194560 1 2 3", encoding="utf-8")
    if wchan is not None:
        (folder / "wchan").write_text(wchan, encoding="ascii")
    return proc


@pytest.mark.parametrize("state", ["R", "S", "T", "Z"])
def test_a_thread_in_another_state_does_not_wait_for_a_disk(tmp_path: Path, state: str) -> None:
    assert disk_wait(7, process(tmp_path, state, wchan="folio_wait_bit_common")) is None


@pytest.mark.parametrize(
    ("wchan", "place"), [("folio_wait_bit_common", "folio_wait_bit_common"), ("0", ""), ("", ""), (None, "")]
)
def test_an_uninterruptible_wait_is_one_for_a_disk(tmp_path: Path, wchan: str | None, place: str) -> None:
    assert disk_wait(7, process(tmp_path, "D", wchan=wchan)) == place


def test_the_name_of_the_process_is_not_taken_for_its_state(tmp_path: Path) -> None:
    assert disk_wait(7, process(tmp_path, "S", name="a) D (b")) is None


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert disk_wait(7, tmp_path) is None


def test_a_running_process_does_not_wait() -> None:
    assert disk_wait(os.getpid()) is None
