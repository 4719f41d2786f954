"""One log directory (one disk): its lock, its owner, its checkpoint files, and what it holds when the broker starts.

Paths enter, `LogDirectory` objects with what was found and checkpointed leave; `log.loading` calls it on worker threads
while the broker starts, and `log.disk_work` for checkpoints later. Invariant: a directory is used by one broker of one
cluster at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from posixpath import dirname
from threading import Lock
from typing import Final

from odradek.base.errors import ConfigError, InvalidTopicError, StorageError
from odradek.base.ports import Files
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.checkpoints import MetaProperties

logger = logging.getLogger(__name__)

DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
LONGEST_NAME: Final = 255


class Turns:
    """Lets one thread at a time write a checkpoint, and nothing older over something newer.

    The loop and its worker threads both write them. Two at once would use the same temporary file; and what a
    truncation has written at once must not be overwritten by what was put together before it.
    """

    def __init__(self) -> None:
        """Nothing was written yet."""
        self._lock: Final = Lock()
        self._drawn = 0
        self._written = 0

    def draw(self) -> int:
        """The turn of content that is put together now; on the loop."""
        self._drawn += 1
        return self._drawn

    def take(self, turn: int, write: Callable[[], None]) -> bool:
        """Write the content of a turn, unless a later one was written; whether it was. Blocks."""
        with self._lock:
            if turn < self._written:
                return False
            write()
            self._written = turn
            return True


@dataclass(slots=True, kw_only=True)
class LogDirectory:
    """One of `log.dirs` in use."""

    path: str
    release: Callable[[], None]
    clean: bool
    """Whether the broker that used it last stopped in order."""
    failure: StorageError | None = None
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    log_start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    found: list[TopicPartition] = field(default_factory=list)
    """Current logs that are not loaded yet."""
    futures: list[tuple[TopicPartition, str]] = field(default_factory=list)
    """Logs that were being moved to here, with the names of their directories."""
    deleted: list[str] = field(default_factory=list)
    """Directories of deleted logs whose removal was not done yet."""
    point_turns: Turns = field(default_factory=Turns)
    """Of the checkpoints of recovery points and log starts."""
    mark_turns: Turns = field(default_factory=Turns)
    """Of the checkpoint of high watermarks."""

    def log_path(self, topic_partition: TopicPartition) -> str:
        """Directory of a log."""
        return f"{self.path}/{topic_partition}"


def open_directory(files: Files, path: str, owner: MetaProperties) -> LogDirectory:
    """Lock a log directory, check whose it is, and look what is in it.

    Raises `ConfigError` when another process has it or it is another broker's or cluster's, `StorageError` when the
    disk fails.
    """
    if not files.exists(path):
        files.make_directories(path)
        files.sync_directory(dirname(path))
    try:
        release = files.lock(f"{path}/{checkpoints.LOCK_FILE}")
    except StorageError as error:
        if not error.held:
            raise
        raise ConfigError(f"log directory {path} is in use: {error}") from error
    try:
        _claim(files, path, owner)
        directory = LogDirectory(path=path, release=release, clean=_take_clean_mark(files, path))
        directory.recovery_points = _read_offsets(files, f"{path}/{checkpoints.RECOVERY_POINT_FILE}")
        directory.log_start_offsets = _read_offsets(files, f"{path}/{checkpoints.LOG_START_FILE}")
        _look(files, directory)
    except BaseException:
        release()
        raise
    return directory


def _claim(files: Files, path: str, owner: MetaProperties) -> None:
    meta_path = f"{path}/{checkpoints.META_PROPERTIES_FILE}"
    if files.exists(meta_path):
        MetaProperties.check(files.read(meta_path), meta_path, owner)
    else:
        files.write_atomically(meta_path, owner.encode())


def _take_clean_mark(files: Files, path: str) -> bool:
    """Whether the mark was there; it is gone afterwards, since from now on a crash leaves the logs unclean."""
    mark = f"{path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
    if not files.exists(mark):
        return False
    files.remove(mark)
    files.sync_directory(path)
    return True


def _read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """A checkpoint that is missing or malformed counts as empty: 0 is a safe recovery point and log start."""
    try:
        return checkpoints.decode_offsets(files.read(path), path)
    except checkpoints.MalformedCheckpointError as error:
        logger.warning("%s; every offset in it counts as 0", error)
    except StorageError as error:
        if not error.missing:
            raise
    return {}


def _look(files: Files, directory: LogDirectory) -> None:
    for name in files.list(directory.path):
        path = f"{directory.path}/{name}"
        if not files.is_directory(path):
            continue
        if name.endswith(DELETE_SUFFIX):
            directory.deleted.append(path)
            continue
        topic_partition = parse_log_name(name)
        future = parse_future_name(name)
        if topic_partition is not None:
            directory.found.append(topic_partition)
        elif future is not None:
            directory.futures.append((future, name))
        elif name.endswith(STRAY_SUFFIX):
            logger.warning("%s is a stray log, whose partition was not assigned to this broker any more", path)
        else:
            logger.warning("%s is no log of a partition; it is left alone", path)


def parse_log_name(name: str) -> TopicPartition | None:
    """The partition whose log a directory of this name is; None for other names."""
    if name.endswith((DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX)):
        return None
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdecimal()):
        return None
    return TopicPartition(topic, int(partition))


def parse_future_name(name: str) -> TopicPartition | None:
    """The partition whose future log a directory of this name is; None for other names."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    return parse_log_name(name.removesuffix(FUTURE_SUFFIX).rpartition(".")[0])


def future_name(topic_partition: TopicPartition, unique: str) -> str:
    """Name of a future log's directory; `InvalidTopicError` when the topic's name leaves no room for it.

    It is not cut as a deleted log's is, since it must tell the partition after a restart.
    """
    name = f"{topic_partition}.{unique}{FUTURE_SUFFIX}"
    if len(name) > LONGEST_NAME:
        raise InvalidTopicError(f"the name of topic {topic_partition.topic} is too long for a log that moves")
    return name


def deleted_name(topic_partition: TopicPartition, unique: str) -> str:
    """Name of a deleted log's directory; the topic is cut where a file system would refuse the whole."""
    ending = f"-{topic_partition.partition}.{unique}{DELETE_SUFFIX}"
    return topic_partition.topic[: LONGEST_NAME - len(ending)] + ending


def write_offsets(files: Files, directory: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write one of the offset checkpoints, in its writer's turn. Blocks; raises `StorageError`."""
    files.write_atomically(f"{directory.path}/{name}", checkpoints.encode_offsets(offsets))


def read_high_watermarks(files: Files, directory: LogDirectory) -> dict[TopicPartition, int]:
    """The high-watermark checkpoint; empty when missing or malformed. Raises `StorageError`."""
    return _read_offsets(files, f"{directory.path}/{checkpoints.HIGH_WATERMARK_FILE}")
