"""A cleaned segment goes to the disk a piece at a time."""

from __future__ import annotations

import pytest

from odradek.log import cleaned_segment
from odradek.log.cleaned_segment import SegmentWriter
from odradek.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, file_name
from odradek.testing.disk import MemoryFiles
from odradek.testing.logs import DIRECTORY


def test_a_large_segment_is_synced_in_pieces(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned_segment, "WRITE_BYTES", 100)
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
