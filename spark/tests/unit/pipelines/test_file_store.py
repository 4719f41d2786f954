"""A folder of this machine as a store."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyspark_odradek.pipelines.file_store import LocalStore


def test_files_and_folders(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "new" / "folder")
    assert (store.names(""), store.files("a"), store.location) == ([], [], (tmp_path / "new" / "folder").as_uri())
    store.create("a/b/1", b"one")
    store.create("a/2", b"two")
    assert store.names("a") == ["2", "b"]
    assert store.files("") == ["a/2", "a/b/1"]
    assert store.read("a/b/1") == b"one"
    with pytest.raises(FileNotFoundError):
        store.read("a/3")
    store.move("a/2", "c/2")
    assert store.files("") == ["a/b/1", "c/2"]
    with pytest.raises(FileNotFoundError):
        store.move("a/2", "c/3")
    store.persist(["c/2"])
    for gone in ("a", "c/2", "c/2"):
        store.remove(gone)
    assert store.files("") == []


def test_a_file_is_created_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a", b"one")
    with pytest.raises(FileExistsError):
        store.create("a", b"two")
    assert (store.read("a"), store.names("")) == (b"one", ["a"])
    store.replace("a", b"three")
    assert (store.read("a"), store.names("")) == (b"three", ["a"])


def test_a_crash_before_the_end_of_a_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store.create("a", b"one")

    def crash(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", crash)
    for write in (lambda: store.replace("a", b"two"), lambda: store.create("b", b"two")):
        with pytest.raises(KeyboardInterrupt):
            write()
    assert store.read("a") == b"one"
    assert [name for name in store.names("") if not name.startswith(".")] == ["a"]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    store = LocalStore(tmp_path)
    store.create("a", b"one")
    with pytest.raises(FileExistsError):
        store.create("a", b"two")
    assert (store.read("a"), store.names("")) == (b"one", ["a"])


def test_another_error_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    store = LocalStore(tmp_path)
    with pytest.raises(OSError, match="the disk is full"):
        store.create("a", b"one")
    assert store.names("") == []
