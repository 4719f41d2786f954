"""The contract of `Files`, tested with the operating system's files and with those in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.base.errors import StorageError
from odradek.base.ports import Files
from odradek.base.system_ports import SystemFiles
from odradek_testkit.disk import MemoryFiles


class Disk(NamedTuple):
    files: Files
    root: str


@pytest.fixture(params=["system", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    files: Files = SystemFiles() if request.param == "system" else MemoryFiles()
    root = f"{tmp_path}/disk"
    files.make_directories(root)
    return Disk(files, root)


def test_what_is_written_is_read(disk: Disk) -> None:
    file = disk.files.open(f"{disk.root}/a", create=True)
    assert file.pwritev((b"hello ", bytearray(b"wor"), memoryview(b"ld")), 0) == 11
    assert file.pread(5, 0) == b"hello"
    assert file.pread(100, 6) == b"world"
    assert file.pread(5, 11) == b""
    assert file.size() == disk.files.size(f"{disk.root}/a") == 11
    assert disk.files.read(f"{disk.root}/a") == b"hello world"
    file.close()


def test_what_is_in_memory_is_read_now(disk: Disk) -> None:
    file = disk.files.open(f"{disk.root}/a", create=True)
    file.pwritev((b"hello world",), 0)
    assert file.pread_now(5, 6) == b"world"
    assert file.pread_now(0, 3) == b""
    assert file.pread_now(6, 6) is None, "the file ends before"
    file.close()
    with pytest.raises(StorageError):
        file.pread_now(5, 6)
    assert file.fileno() is None


def test_the_file_system_of_a_directory_is_local_unless_it_is_known_to_be_remote(disk: Disk) -> None:
    assert disk.files.remote_type(disk.root) is None
    assert not disk.files.open(f"{disk.root}/a", create=True).is_remote
    with pytest.raises(StorageError):
        disk.files.remote_type(f"{disk.root}/missing")


def test_more_buffers_than_one_system_call_takes(disk: Disk) -> None:
    buffers = [bytes([number % 251]) * (number % 7) for number in range(3000)]
    file = disk.files.open(f"{disk.root}/a", create=True)
    total = file.pwritev(buffers, 3)
    assert total == sum(map(len, buffers))
    assert disk.files.read(f"{disk.root}/a") == b"\0\0\0" + b"".join(buffers)
    file.close()


def test_a_write_in_the_middle_replaces(disk: Disk) -> None:
    file = disk.files.open(f"{disk.root}/a", create=True)
    file.pwritev((b"0123456789",), 0)
    file.pwritev((b"xy",), 4)
    assert file.pread(10, 0) == b"0123xy6789"
    file.close()


@pytest.mark.parametrize(("size", "content"), [(2, b"01"), (4, b"0123"), (6, b"0123\0\0")])
def test_truncate_shortens_and_extends(disk: Disk, size: int, content: bytes) -> None:
    file = disk.files.open(f"{disk.root}/a", create=True)
    file.pwritev((b"0123",), 0)
    file.truncate(size)
    file.sync()
    assert disk.files.read(f"{disk.root}/a") == content
    file.close()


def test_a_missing_file_is_distinguished_from_other_errors(disk: Disk) -> None:
    missing = f"{disk.root}/none"
    attempts: list[Callable[[], object]] = [
        lambda: disk.files.open(missing),
        lambda: disk.files.read(missing),
        lambda: disk.files.size(missing),
        lambda: disk.files.list(missing),
        lambda: disk.files.rename(missing, f"{disk.root}/b"),
        lambda: disk.files.open(f"{missing}/below", create=True),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError) as caught:
            attempt()
        assert caught.value.missing
        assert not caught.value.full
        assert missing in caught.value.path
    assert not disk.files.exists(missing)
    disk.files.remove(missing)
    disk.files.remove_tree(missing)


def test_a_directory_is_not_a_file(disk: Disk) -> None:
    for attempt in (disk.files.open, disk.files.read, disk.files.remove):
        with pytest.raises(StorageError) as caught:
            attempt(disk.root)
        assert not caught.value.missing


def test_open_keeps_what_is_there(disk: Disk) -> None:
    first = disk.files.open(f"{disk.root}/a", create=True)
    first.pwritev((b"kept",), 0)
    second = disk.files.open(f"{disk.root}/a", create=True)
    assert second.pread(4, 0) == b"kept"
    first.close()
    second.close()


def test_a_read_only_file_refuses_writes(disk: Disk) -> None:
    disk.files.write_atomically(f"{disk.root}/a", b"data")
    file = disk.files.open(f"{disk.root}/a", read_only=True)
    assert file.pread(4, 0) == b"data"
    with pytest.raises(StorageError):
        file.pwritev((b"x",), 0)
    with pytest.raises(StorageError):
        file.truncate(0)
    file.close()


def test_a_closed_file_is_unusable_and_can_be_closed_twice(disk: Disk) -> None:
    file = disk.files.open(f"{disk.root}/a", create=True)
    file.close()
    file.close()
    for attempt in (lambda: file.pread(1, 0), lambda: file.pwritev((b"x",), 0), file.sync, file.size):
        with pytest.raises(StorageError):
            attempt()


def test_atomic_write_replaces_and_leaves_nothing_beside(disk: Disk) -> None:
    disk.files.write_atomically(f"{disk.root}/a", b"a long first content")
    disk.files.write_atomically(f"{disk.root}/a", b"second")
    assert disk.files.read(f"{disk.root}/a") == b"second"
    assert disk.files.list(disk.root) == ["a"]


def test_rename_replaces_a_file_and_open_files_follow(disk: Disk) -> None:
    file = disk.files.open(f"{disk.root}/a", create=True)
    file.pwritev((b"moved",), 0)
    disk.files.write_atomically(f"{disk.root}/b", b"old")
    disk.files.rename(f"{disk.root}/a", f"{disk.root}/b")
    file.renamed_to(f"{disk.root}/b")
    assert file.path == f"{disk.root}/b"
    assert file.pread(5, 0) == b"moved"
    assert disk.files.list(disk.root) == ["b"]
    file.close()


def test_directories_are_made_listed_moved_and_removed(disk: Disk) -> None:
    disk.files.make_directories(f"{disk.root}/x/y")
    disk.files.make_directories(f"{disk.root}/x/y")
    disk.files.write_atomically(f"{disk.root}/x/y/b", b"1")
    disk.files.write_atomically(f"{disk.root}/x/y/a", b"2")
    assert disk.files.list(f"{disk.root}/x/y") == ["a", "b"]
    assert disk.files.is_directory(f"{disk.root}/x")
    assert not disk.files.is_directory(f"{disk.root}/x/y/a")
    disk.files.rename(f"{disk.root}/x", f"{disk.root}/z")
    disk.files.sync_directory(disk.root)
    assert disk.files.read(f"{disk.root}/z/y/a") == b"2"
    assert not disk.files.exists(f"{disk.root}/x")
    disk.files.remove_tree(f"{disk.root}/z")
    assert disk.files.list(disk.root) == []


def test_a_removed_file_can_still_be_read_while_it_is_open(disk: Disk) -> None:
    file = disk.files.open(f"{disk.root}/a", create=True)
    file.pwritev((b"here",), 0)
    disk.files.remove(f"{disk.root}/a")
    assert not disk.files.exists(f"{disk.root}/a")
    assert file.pread(4, 0) == b"here"
    file.close()


def test_a_lock_is_exclusive_until_released(disk: Disk) -> None:
    release = disk.files.lock(f"{disk.root}/.lock")
    with pytest.raises(StorageError, match="another process holds it"):
        disk.files.lock(f"{disk.root}/.lock")
    release()
    release()
    disk.files.lock(f"{disk.root}/.lock")()


def test_free_space_is_within_the_total(disk: Disk) -> None:
    free_bytes, total_bytes = disk.files.free_bytes(disk.root)
    assert 0 <= free_bytes <= total_bytes


def test_allocate_extends_with_zeros_and_never_truncates(disk: Disk) -> None:
    file = disk.files.open(f"{disk.root}/a", create=True)
    file.pwritev((b"01",), 0)
    file.allocate(6)
    assert disk.files.read(f"{disk.root}/a") == b"01\0\0\0\0"
    file.allocate(3)
    assert file.size() == 6
    file.close()
    with pytest.raises(StorageError):
        file.allocate(10)


def test_a_file_is_dated(disk: Disk) -> None:
    path = f"{disk.root}/a"
    disk.files.open(path, create=True).close()
    disk.files.set_modified_ms(path, 1_600_000_000_123)
    assert disk.files.modified_ms(path) == 1_600_000_000_123
    disk.files.rename(path, f"{disk.root}/b")
    assert disk.files.modified_ms(f"{disk.root}/b") == 1_600_000_000_123
    file = disk.files.open(f"{disk.root}/b")
    file.pwritev((b"x",), 0)
    file.close()
    assert disk.files.modified_ms(f"{disk.root}/b") > 1_600_000_000_123
    for act in (lambda: disk.files.modified_ms(path), lambda: disk.files.set_modified_ms(path, 5)):
        with pytest.raises(StorageError) as raised:
            act()
        assert raised.value.missing
