"""The manifests of an archive: the offsets of the topic in its files, consistent with the files.

Folder of an archive:

    date=2013-01-01/run-000001-part-0.parquet   the data, for any reader of Parquet
    _manifests/000001.json                      run 1: start and end offsets, files, rows
    _staging/000002/...                         files that a run is writing
    _lock                                       held while a run is in progress

Steps of a run, and the effect of a crash after each of them:

1. Spark writes to `_staging`.         Readers do not see it. The next run deletes it and reads the same offsets again.
2. The manifest is written atomically. This commits the run, even if a crash follows.
3. The files are moved to their place. The next run first moves the rest, as listed in the manifest.

So a record is archived exactly once, whenever a crash happens. Readers may see a part of a run during step 3.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import PartitionOffsets, SparkOffset, from_spark, to_spark
from pyspark_odradek.pipelines.files import count_rows, sync, write_text_durably


class ArchiveError(OdradekError):
    """The archive is used by another run, belongs to another topic, or a file is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What one run added. Files are (name in staging, final name), relative to the archive."""

    run: int
    topic: str
    start: SparkOffset
    end: SparkOffset
    rows: int
    files: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        """Return the JSON of the manifest."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parse the result of `to_json`."""
        values = json.loads(text)
        return cls(**{**values, "files": tuple((source, target) for source, target in values["files"])})


class Archive:
    """The folder of an archive. Use it inside `opened`."""

    def __init__(self, folder: Path, topic: str) -> None:
        """`folder` is created if it does not exist."""
        self.folder = folder
        self.topic = topic
        self._manifests = folder / "_manifests"
        self._staging = folder / "_staging"

    @contextmanager
    def opened(self) -> Iterator[Archive]:
        """Lock the archive and finish earlier runs. Raises `ArchiveError` if another run holds the lock."""
        self._manifests.mkdir(parents=True, exist_ok=True)
        with (self.folder / "_lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArchiveError(f"another run is writing to the archive {self.folder}") from None
            self._finish_last()
            yield self

    def last(self) -> Manifest | None:
        """Return the latest run. Raises `ArchiveError` if it was for another topic."""
        names = sorted(self._manifests.glob("[0-9]*.json"))
        if not names:
            return None
        manifest = Manifest.from_json(names[-1].read_text(encoding="utf-8"))
        if manifest.topic != self.topic:
            raise ArchiveError(f"{self.folder} is the archive of topic {manifest.topic}, not of {self.topic}")
        return manifest

    def archived(self) -> dict[TopicPartition, int]:
        """Return the next offset to archive of each known partition."""
        manifest = self.last()
        return {} if manifest is None else from_spark(manifest.end)

    def next_run(self) -> tuple[int, Path]:
        """Return number and staging folder of a new run; the folder does not exist yet."""
        manifest = self.last()
        run = 1 if manifest is None else manifest.run + 1
        return run, self._staging / f"{run:06}"

    def commit(self, run: int, start: PartitionOffsets, end: PartitionOffsets) -> Manifest:
        """Commit the staged files of `run` to the archive."""
        staged = sorted((self._staging / f"{run:06}").glob("date=*/*.parquet"))
        for path in staged:
            sync(path)
        files = tuple(
            (
                str(path.relative_to(self.folder)),
                f"{path.parent.name}/run-{run:06}-part-{number}.parquet",
            )
            for number, path in enumerate(staged)
        )
        manifest = Manifest(
            run=run,
            topic=self.topic,
            start=to_spark(start),
            end=to_spark(end),
            rows=count_rows(staged),
            files=files,
        )
        write_text_durably(self._manifests / f"{run:06}.json", manifest.to_json())
        self._finish_last()
        return manifest

    def _finish_last(self) -> None:
        """Move the files in the latest manifest that are not in place yet, and delete other staged files."""
        manifest = self.last()
        folders: set[Path] = set()
        for source, target in manifest.files if manifest is not None else ():
            staged, final = self.folder / source, self.folder / target
            if staged.exists():
                final.parent.mkdir(exist_ok=True)
                staged.replace(final)
                folders.add(final.parent)
            elif not final.exists():
                raise ArchiveError(f"{final} is missing although run {manifest.run if manifest else 0} wrote it")
        for folder in sorted(folders):
            sync(folder)
        sync(self.folder)
        if self._staging.exists():
            shutil.rmtree(self._staging)


def archive_files(folder: Path) -> list[Path]:
    """Return the data files of an archive without a run in progress, in order."""
    return sorted(folder.glob("date=*/*.parquet"))
