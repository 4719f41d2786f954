"""Completes moves between log directories that a shutdown or a crash interrupted, before any log is loaded.

`LogLoader` uses it once. The event loop decides; whatever may wait for a disk runs on the worker of that disk's
directory. A directory that fails or stalls goes offline, and the others continue without it. A marker file (see
`moves`) shows which of two logs of a partition is newer. Invariant: a marker is removed only when no older log can
reappear after a power failure, so all directories are synced first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from odradek.base.errors import StorageError
from odradek.base.ports import Files
from odradek.base.types import TopicPartition
from odradek.log.directories.directory import LogDirectory, deleted_name
from odradek.log.directories.directory_worker import LONG, DirectoryWorkers
from odradek.log.directories.log_table import LogTable
from odradek.log.directories.moves import MARKER_FILE, remove_marker

logger = logging.getLogger(__name__)

T = TypeVar("T")


class InterruptedMoves:
    """The completion of interrupted moves of one broker."""

    def __init__(
        self,
        files: Files,
        table: LogTable,
        *,
        workers: DirectoryWorkers,
        fail: Callable[[LogDirectory, StorageError], None],
        unique: Callable[[], str],
    ) -> None:
        """`fail` takes a directory offline; `unique` returns a part of the name of a deleted log."""
        self._files: Final = files
        self._table: Final = table
        self._workers: Final = workers
        self._fail: Final = fail
        self._unique: Final = unique

    async def complete(self) -> None:
        """Complete or undo interrupted moves; updates what the directories have found.

        Repeats without a directory that fails meanwhile. While a directory of the broker is offline, anything that
        depends on it is left unchanged. So are two logs of one name if neither or both are marked: loading refuses the
        second.
        """
        while not await self._attempt(list(self._table.directories.values())):
            pass

    async def _attempt(self, directories: Sequence[LogDirectory]) -> bool:
        """Return whether all steps succeeded. Directories that failed are offline."""
        complete = not self._table.failed
        search = {one: partial(_marked, self._files, one) for one in directories}
        marked = await self._run("search for interrupted moves", search)
        if len(marked) < len(directories):
            return False
        plan = _Plan(directories, marked, self._unique, complete=complete)
        renames = {
            one.directory: partial(_rename, self._files, one.directory.path, one.renames)
            for one in plan.steps
            if plan.unmarks or one.renames
        }
        renamed = await self._run("completion of moves", renames)
        for one in plan.steps:
            if one.directory in renamed or one.directory not in renames:
                one.apply()
        if len(renamed) < len(renames):
            return False
        unmarks = {one.directory: partial(_unmark, self._files, one.unmarks) for one in plan.steps if one.unmarks}
        return len(await self._run("completion of moves", unmarks)) == len(unmarks)

    async def _run(self, what: str, works: Mapping[LogDirectory, Callable[[], T]]) -> dict[LogDirectory, T]:
        """Run the work of each directory, in parallel. Returns the results of the directories that did not fail."""
        results: dict[LogDirectory, T] = {}

        async def run(directory: LogDirectory, work: Callable[[], T]) -> None:
            worker = self._workers.at(directory.path)
            try:
                results[directory] = await worker.run(f"{what} in {directory.path}", work, patience=LONG)
            except StorageError as error:
                self._fail(directory, error)

        async with asyncio.TaskGroup() as group:
            for directory, work in works.items():
                group.create_task(run(directory, work))
        return results


# Decisions


@dataclass(slots=True)
class _Steps:
    """The steps in one directory."""

    directory: LogDirectory
    found: list[TopicPartition]
    """Current logs after the renames."""
    futures: list[tuple[TopicPartition, str]] = field(default_factory=list)
    """Future logs whose moves continue, with the names of their directories."""
    renames: list[tuple[str, str]] = field(default_factory=list)
    """Old and new paths."""
    deleted: list[str] = field(default_factory=list)
    """New paths of the logs that are removed later."""
    unmarks: list[str] = field(default_factory=list)
    """Logs whose markers are removed when all directories are synced."""

    def delete(self, topic_partition: TopicPartition, path: str, unique: str) -> None:
        """Plan the removal of a log."""
        target = f"{self.directory.path}/{deleted_name(topic_partition, unique)}"
        self.renames.append((path, target))
        self.deleted.append(target)

    def promote(self, topic_partition: TopicPartition, path: str, *, is_marked: bool) -> None:
        """Plan that a future log becomes the current log."""
        logger.warning("%s: the partition has no other log, so this future log becomes its current log", path)
        final = self.directory.log_path(topic_partition)
        self.renames.append((path, final))
        self.found.append(topic_partition)
        if is_marked:
            self.unmarks.append(final)

    def apply(self) -> None:
        """Update what the directory has found, when the renames are durable."""
        self.directory.found = self.found
        self.directory.futures = self.futures
        self.directory.deleted += self.deleted


class _Plan:
    """The steps in all directories."""

    def __init__(
        self,
        directories: Iterable[LogDirectory],
        marked: Mapping[LogDirectory, frozenset[str]],
        unique: Callable[[], str],
        *,
        complete: bool,
    ) -> None:
        """`marked`: paths of the logs with a marker. `complete`: all directories of the broker are online."""
        self.steps: Final = [_Steps(directory, list(directory.found)) for directory in directories]
        self._marked: Final = marked
        self._unique: Final = unique
        self._complete: Final = complete
        owners: dict[TopicPartition, list[_Steps]] = {}
        for steps in self.steps:
            for topic_partition in steps.directory.found:
                owners.setdefault(topic_partition, []).append(steps)
        for topic_partition, homes in owners.items():
            self._keep_the_newest(topic_partition, homes)
        seen: set[TopicPartition] = set()
        for steps in self.steps:
            for topic_partition, name in steps.directory.futures:
                self._settle_future(
                    steps,
                    topic_partition,
                    name,
                    is_second=topic_partition in seen,
                    has_current=topic_partition in owners,
                )
                seen.add(topic_partition)

    @property
    def unmarks(self) -> bool:
        """Whether markers are removed, so that all directories have to be synced before."""
        return any(steps.unmarks for steps in self.steps)

    def _keep_the_newest(self, topic_partition: TopicPartition, homes: Sequence[_Steps]) -> None:
        """Remove the older of two current logs."""
        path_in = {one.directory.path: one.directory.log_path(topic_partition) for one in homes}
        marked = [one for one in homes if path_in[one.directory.path] in self._marked[one.directory]]
        if len(marked) != 1 or (len(homes) == 1 and not self._complete):
            return
        newest = marked[0]
        for one in homes:
            if one is not newest:
                old, new = one.directory.path, newest.directory.path
                logger.warning("%s moved to %s: the old log in %s is removed", topic_partition, new, old)
                one.delete(topic_partition, path_in[old], self._unique())
                one.found.remove(topic_partition)
        if self._complete:
            newest.unmarks.append(path_in[newest.directory.path])

    def _settle_future(
        self, steps: _Steps, topic_partition: TopicPartition, name: str, *, is_second: bool, has_current: bool
    ) -> None:
        """Keep one future log per partition; it becomes the current log if there is none."""
        path = f"{steps.directory.path}/{name}"
        if is_second:
            steps.delete(topic_partition, path, self._unique())
        elif has_current:
            steps.futures.append((topic_partition, name))
        elif self._complete:
            steps.promote(topic_partition, path, is_marked=path in self._marked[steps.directory])
        else:
            logger.warning("%s is kept unchanged while a directory is offline", path)


# Blocking work


def _marked(files: Files, directory: LogDirectory) -> frozenset[str]:
    """Return the paths of the logs that have a marker. Raises `StorageError`."""
    paths = [directory.log_path(topic_partition) for topic_partition in directory.found]
    paths += [f"{directory.path}/{name}" for _, name in directory.futures]
    return frozenset(path for path in paths if files.exists(f"{path}/{MARKER_FILE}"))


def _rename(files: Files, directory: str, renames: Iterable[tuple[str, str]]) -> None:
    """Rename logs, and sync their directory even if there are none. Raises `StorageError`."""
    for path, target in renames:
        files.rename(path, target)
    files.sync_directory(directory)


def _unmark(files: Files, paths: Iterable[str]) -> None:
    for path in paths:
        remove_marker(files, path)
