"""What every `FileStore` of the pipelines does, on any file system."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


def check_file_store(store: Any) -> None:
    """Check the operations of a store that is empty. Leaves it empty."""
    assert (store.names(""), store.files("a")) == ([], [])
    store.create("a/b/1", b"one\x00\xff")
    store.create("a/2", b"two")
    assert (store.names("a"), store.files("")) == (["2", "b"], ["a/2", "a/b/1"])
    assert store.read("a/b/1") == b"one\x00\xff"
    with pytest.raises(FileNotFoundError):
        store.read("a/3")
    with pytest.raises(FileExistsError):
        store.create("a/2", b"three")
    assert store.read("a/2") == b"two"
    store.replace("a/2", b"four")
    store.replace("a/4", b"five")
    assert (store.read("a/2"), store.read("a/4")) == (b"four", b"five")
    store.move("a/2", "c/d/2")
    with pytest.raises(FileNotFoundError):
        store.move("a/2", "c/3")
    assert store.files("") == ["a/4", "a/b/1", "c/d/2"]
    for gone in ("a", "c/d/2", "c/d/2"):
        store.remove(gone)
    assert store.files("") == []


def check_that_one_of_several_creates(store: Any, *, rounds: int = 20, callers: int = 4) -> None:
    """Check that of several callers who create the same file at the same time one succeeds, and its content stays."""

    def create(path: str, caller: int) -> bool:
        try:
            store.create(path, b"%d" % caller)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(callers) as threads:
        for number in range(rounds):
            path = f"races/{number}"
            done = list(threads.map(create, [path] * callers, range(callers)))
            assert done.count(True) == 1, f"{done} in round {number}"
            assert store.read(path) == b"%d" % done.index(True)
    store.remove("races")
