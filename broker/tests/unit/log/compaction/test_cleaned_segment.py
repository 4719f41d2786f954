"""A cleaned segment is written to the disk in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.system_ports import SystemFiles
from odradek.log.compaction import cleaned_segment
from odradek.log.compaction.cleaned_segment import SegmentWriter
from odradek.log.segments.segment import CLEANED_SUFFIX, LOG_SUFFIX, file_name
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import DIRECTORY


def test_a_large_segment_is_synced_in_pieces(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned_segment, "WRITE_BYTES", 100)
    monkeypatch.setattr(cleaned_segment, "BEHIND_BYTES", 150)
    monkeypatch.setattr(cleaned_segment, "SYNC_BYTES", 400)
    files.make_directories(DIRECTORY)
    path = f"{DIRECTORY}/{file_name(0, LOG_SUFFIX)}{CLEANED_SUFFIX}"
    done: list[tuple[str, str]] = []

    def note(operation: str, where: str) -> None:
        done.append((operation, where))

    files.fail = note
    writer = SegmentWriter(files, DIRECTORY, 0, 4096)
    for number in range(10):
        writer.append(b"%d" % number * 100, number, 1)
    writer.finish(1)
    assert done.count(("sync", path)) == 3
    assert files.read(path) == b"".join(b"%d" % number * 100 for number in range(10))


def test_writeback_starts_while_writing_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writeback is started for each piece, and again when it should be complete, without waiting."""
    monkeypatch.setattr(cleaned_segment, "WRITE_BYTES", 100)
    monkeypatch.setattr(cleaned_segment, "BEHIND_BYTES", 200)
    progress: list[tuple[int, int]] = []
    monkeypatch.setattr(
        cleaned_segment, "forget_pages", lambda _file, position, length: progress.append((position, length))
    )
    writer = SegmentWriter(SystemFiles(), str(tmp_path), 0, 4096)
    for number in range(7):
        writer.append(bytes(100), number, 1)
    assert progress == [(0, 200), (0, 400), (200, 400)]
    writer.finish(1)
    assert progress[3:] == [(0, 0)]


@pytest.mark.parametrize("count", [3, 1000])
def test_small_entries_come_in_their_order(files: MemoryFiles, count: int) -> None:
    files.make_directories(DIRECTORY)
    writer = SegmentWriter(files, DIRECTORY, 0, 4096)
    for number in range(count):
        writer.append(b"%06d" % number, number, 1)
    writer.finish(1)
    content = files.read(f"{DIRECTORY}/{file_name(0, LOG_SUFFIX)}{CLEANED_SUFFIX}")
    assert content == b"".join(b"%06d" % number for number in range(count))
