"""The manifests of an archive: the offsets of the topics in its files, consistent with the files.

Folder of an archive, on any file system:

    date=2013-01-01/run-000001-part-0.parquet   the data, for any reader of Parquet (or topic=a/date=.../...)
    _manifests/000001.json                      run 1: start and end offsets, files, rows
    _staging/000002-.../...                     files that a run is writing

Steps of a run, and the effect of a crash after each of them:

1. Spark writes to `_staging`.          Readers do not see it. The next run deletes it and reads the same offsets again.
2. The manifest is created atomically.  This commits the run, even if a crash follows.
3. Files that it replaces are removed.  The next run first removes and moves the rest, as listed in the manifest.
4. The files are moved to their place.

So a record is archived exactly once, whenever a crash happens. Readers may see a part of a run during steps 3 and 4. In
an object store, a move is a copy by the store; readers then never need the manifests.

There is no lock, because a killed run could not release it. Two runs at the same time would create the same manifest,
and only one can. A new run that finds files in `_staging` first creates the next manifest, without files, so that the
run that writes them, if it still exists, fails when it commits. Then they can be deleted.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from odradek.base.errors import OdradekError
from pyspark_odradek.offsets import PartitionOffsets, SparkOffset, to_spark
from pyspark_odradek.pipelines.file_store import FileStore

MANIFESTS: Final = "_manifests"
STAGING: Final = "_staging"
BY_DATE: Final = ("date",)
BY_TOPIC: Final = ("topic", "date")


class ArchiveError(OdradekError):
    """The archive has other topics or another layout, another run has taken over, or a file is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What one run added. Paths are relative to the archive.

    `files` are pairs: the name in staging and the final name. `replaces` are the numbers of earlier runs whose records
    this run has read again, and `removed` their files.
    """

    run: int
    start: SparkOffset
    end: SparkOffset
    rows: int
    files: tuple[tuple[str, str], ...]
    layout: tuple[str, ...] = BY_DATE
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    replaces: tuple[int, ...] = ()
    removed: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the JSON of the manifest."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parse the result of `to_json`, or a manifest of version 0.1, which has no layout and a single topic."""
        values: dict[str, Any] = json.loads(text)
        # The offsets name the topics too.
        values.pop("topic", None)
        values["files"] = tuple((source, target) for source, target in values["files"])
        for name in ("layout", "replaces", "removed"):
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRun:
    """A run in progress: its number and the folder where Spark writes its files."""

    number: int
    staging: str


class Archive:
    """An archive in a store. Call `recover` first."""

    def __init__(self, store: FileStore, *, layout: tuple[str, ...] = BY_DATE) -> None:
        """`layout` are the columns that the folders are named after."""
        self.store = store
        self._layout = layout

    def recover(self) -> Manifest | None:
        """Finish the latest run, stop unfinished ones, and return the latest manifest; None in a new archive.

        Raises `ArchiveError` if the archive has another layout, or a file of the latest run is missing.
        """
        while True:
            last = self.last()
            if last is not None and last.layout != self._layout:
                raise ArchiveError(
                    f"{self.store.location} has the folders {'/'.join(last.layout)}, not {'/'.join(self._layout)}; "
                    "use the same --by-topic as before, or another --output"
                )
            self._finish(last)
            done = 0 if last is None else last.run
            if any(_run_of(name) > done for name in self.store.names(STAGING)) and not self._fence(last):
                continue
            self.store.remove(STAGING)
            return self.last()

    def _fence(self, last: Manifest | None) -> bool:
        """Create the manifest that an unfinished run would create. False if it has just created it itself."""
        offsets = {} if last is None else last.end
        fence = Manifest(
            run=1 if last is None else last.run + 1,
            start=offsets,
            end=offsets,
            rows=0,
            files=(),
            layout=self._layout,
            topic_ids={} if last is None else last.topic_ids,
        )
        try:
            self.store.create(_manifest_path(fence.run), fence.to_json().encode())
        except FileExistsError:
            return False
        return True

    def last(self) -> Manifest | None:
        """Return the latest manifest."""
        numbers = self._numbers()
        return self._read(numbers[-1]) if numbers else None

    def history(self) -> list[Manifest]:
        """Return the manifests of all runs whose records are in the archive, oldest first."""
        runs: list[Manifest] = []
        for number in self._numbers():
            manifest = self._read(number)
            runs = [run for run in runs if run.run not in manifest.replaces]
            runs.append(manifest)
        return runs

    def _numbers(self) -> list[int]:
        stems = (name.removesuffix(".json") for name in self.store.names(MANIFESTS) if name.endswith(".json"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def _read(self, number: int) -> Manifest:
        return Manifest.from_json(self.store.read(_manifest_path(number)).decode())

    def next_run(self, last: Manifest | None) -> ArchiveRun:
        """Return a new run after `last`. Its folder does not exist yet."""
        number = 1 if last is None else last.run + 1
        return ArchiveRun(number=number, staging=f"{STAGING}/{number:06}-{uuid.uuid4().hex}")

    def staged(self, run: ArchiveRun) -> list[str]:
        """Return the data files that Spark has written for a run."""
        return [path for path in self.store.files(run.staging) if path.endswith(".parquet")]

    def commit(
        self,
        run: ArchiveRun,
        start: PartitionOffsets,
        end: PartitionOffsets,
        *,
        rows: int,
        topic_ids: Mapping[str, str],
        replaced: Sequence[Manifest] = (),
    ) -> Manifest:
        """Commit the staged files of `run` to the archive. Raises `ArchiveError` if another run has taken over."""
        staged = self.staged(run)
        self.store.persist(staged)
        manifest = Manifest(
            run=run.number,
            start=to_spark(start),
            end=to_spark(end),
            rows=rows,
            files=tuple(
                (
                    path,
                    f"{_folder_below(run.staging, path)}/run-{run.number:06}-part-{number}.parquet",
                )
                for number, path in enumerate(staged)
            ),
            layout=self._layout,
            topic_ids=topic_ids,
            replaces=tuple(each.run for each in replaced),
            removed=tuple(target for each in replaced for _, target in each.files),
        )
        try:
            self.store.create(_manifest_path(run.number), manifest.to_json().encode())
        except FileExistsError:
            raise ArchiveError(
                f"another run has written to {self.store.location} in the meantime, so this one was not committed"
            ) from None
        self._finish(manifest)
        self.store.remove(run.staging)
        return manifest

    def _finish(self, manifest: Manifest | None) -> None:
        """Remove the files that a run replaces, and move its own that are not in place yet."""
        if manifest is None:
            return
        staged = set(self.store.files(STAGING))
        folders = {posixpath.dirname(path) for path in (*manifest.removed, *(target for _, target in manifest.files))}
        there = {f"{folder}/{name}" for folder in folders for name in self.store.names(folder)}
        for path in manifest.removed:
            if path in there:
                self.store.remove(path)
        for source, target in manifest.files:
            if source in staged and target not in there:
                self._move(source, target)
            elif target not in there:
                raise ArchiveError(
                    f"{self.store.location}/{target} is missing although run {manifest.run} wrote it: restore the file"
                )

    def _move(self, source: str, target: str) -> None:
        try:
            self.store.move(source, target)
        except FileNotFoundError:
            # A newer run finishes this one at the same time.
            if posixpath.basename(target) not in self.store.names(posixpath.dirname(target)):
                raise


def _manifest_path(number: int) -> str:
    return f"{MANIFESTS}/{number:06}.json"


def _folder_below(folder: str, path: str) -> str:
    """Return the folder of a path, relative to `folder`."""
    return posixpath.dirname(posixpath.relpath(path, folder))


def _run_of(staged: str) -> int:
    """Return the number of the run in the name of a staging folder."""
    number = staged.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def archive_files(folder: Path) -> list[Path]:
    """Return the data files of an archive in a local folder without a run in progress, in order."""
    return sorted([*folder.glob("date=*/*.parquet"), *folder.glob("topic=*/date=*/*.parquet")])
