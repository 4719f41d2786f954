"""Stores for the tests of pipelines: in memory, like an object store, and one that crashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from pyspark_odradek.pipelines.file_store import FileStore


class Crash(BaseException):
    """The process ends here."""


class ObjectStore:
    """A store without folders. A file appears complete, and a move is a copy and a deletion."""

    location = "s3a://bucket"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.step = lambda: None

    def _below(self, folder: str) -> Iterator[str]:
        return (path for path in sorted(self.objects) if path.startswith(f"{folder}/") or not folder)

    def names(self, folder: str) -> list[str]:
        skipped = len(folder) + 1 if folder else 0
        return sorted({path[skipped:].partition("/")[0] for path in self._below(folder)})

    def files(self, folder: str) -> list[str]:
        return [*self._below(folder)]

    def read(self, path: str) -> bytes:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    def create(self, path: str, data: bytes) -> None:
        if path in self.objects:
            raise FileExistsError(path)
        self.objects[path] = data

    def replace(self, path: str, data: bytes) -> None:
        self.objects[path] = data

    def move(self, source: str, target: str) -> None:
        self.objects[target] = self.read(source)
        self.step()
        del self.objects[source]

    def remove(self, path: str) -> None:
        for each in [each for each in self.objects if each == path or each.startswith(f"{path}/")]:
            del self.objects[each]
            self.step()

    def persist(self, paths: Iterable[str]) -> None:
        assert set(paths) <= set(self.objects)


CHANGES = ("create", "replace", "move", "remove", "persist")


class CrashingStore:
    """Passes calls on to a store, and crashes before or after one of the changes."""

    def __init__(self, store: FileStore, crash_at: int | None = None) -> None:
        self._store = store
        self._left = crash_at
        if isinstance(store, ObjectStore):
            store.step = self._step

    def _step(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Crash

    @property
    def crashed(self) -> bool:
        return self._left is not None and self._left < 0

    def __getattr__(self, name: str) -> Any:
        wanted = getattr(self._store, name)
        if name not in CHANGES:
            return wanted

        def change(*arguments: Any) -> Any:
            self._step()
            result = wanted(*arguments)
            self._step()
            return result

        return change


@pytest.fixture
def object_store() -> ObjectStore:
    return ObjectStore()
