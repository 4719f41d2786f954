"""Residency of pages according to the operating system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.base.errors import StorageError
from odradek.base.ports import File, FileRegion
from odradek.base.system_ports import SystemFiles
from odradek.network.pages import bring_in, is_resident

SIZE = 700_001


@pytest.fixture
def file(tmp_path: Path) -> File:
    made = SystemFiles().open(f"{tmp_path}/a", create=True)
    made.pwritev((b"x" * SIZE,), 0)
    made.sync()
    return made


def descriptor(file: File) -> int:
    found = file.fileno()
    assert found is not None
    return found


@pytest.mark.parametrize(("start", "length"), [(0, SIZE), (1, 1), (131_072, 131_073), (SIZE - 1, 1)])
def test_pages_that_were_read_are_resident(file: File, start: int, length: int) -> None:
    os.posix_fadvise(descriptor(file), 0, 0, os.POSIX_FADV_DONTNEED)

    assert bring_in(FileRegion(file, 0, SIZE), start, length) is None
    assert is_resident(descriptor(file), start, length)
    assert file.pread_now(length, start) == b"x" * length


def test_the_end_of_a_file_is_no_reason_to_wait(file: File) -> None:
    file.truncate(10)

    assert is_resident(descriptor(file), 5, 1 << 20)
    assert bring_in(FileRegion(file, 0, SIZE), 5, 1 << 20) is None


def test_a_closed_file_cannot_be_read_into_the_page_cache(file: File) -> None:
    file.close()

    with pytest.raises(StorageError):
        bring_in(FileRegion(file, 0, SIZE), 0, 10)


def test_what_cannot_tell_counts_as_resident(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert is_resident(folder, 0, 1)
    finally:
        os.close(folder)


def test_what_is_not_open_raises() -> None:
    with pytest.raises(OSError, match="descriptor"):
        is_resident(-1, 0, 1)
