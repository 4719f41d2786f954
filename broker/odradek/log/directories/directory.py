"""One log directory (one disk): its lock, its owner, its checkpoint files, and the logs in it at startup.

`log/directories/loading` opens directories on worker threads while the broker starts; `log/directories/disk_work`
writes checkpoints later. Invariant: a directory is used by one broker of one cluster at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from posixpath import dirname
from threading import Lock
from typing import Any, Final

from odradek.base.errors import ConfigError, InvalidTopicError, StorageError
from odradek.base.ports import Files
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.checkpoints import MetaProperties
from odradek.log.disk_lock import hold_on_loop
from odradek.log.write_group import WriteQueue

logger = logging.getLogger(__name__)

DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
LONGEST_NAME: Final = 255


class Turns:
    """Serializes checkpoint writes, so that older content never replaces newer content.

    Both the loop and its worker threads write checkpoints. Two writes at once would use the same temporary file, and
    a checkpoint prepared before a truncation must not replace the one that the truncation wrote at once.
    """

    def __init__(self) -> None:
        """Start with no turn written."""
        self._lock: Final = Lock()
        self._drawn = 0
        self._written = 0

    def draw(self) -> int:
        """Return the turn of content that is prepared now. Call it on the loop."""
        self._drawn += 1
        return self._drawn

    def take(self, turn: int, write: Callable[[], None]) -> bool:
        """Write the content of a turn, unless a later one was written. Returns whether it was written. Blocks."""
        with self._lock:
            return self._write(turn, write)

    def take_now(self, turn: int, write: Callable[[], None]) -> bool:
        """Do the same on the event loop. Raises `StorageError` if a thread writes for too long (`disk_lock`)."""
        with hold_on_loop(self._lock, "the write of a checkpoint"):
            return self._write(turn, write)

    def _write(self, turn: int, write: Callable[[], None]) -> bool:
        if turn < self._written:
            return False
        write()
        self._written = turn
        return True


@dataclass(slots=True, kw_only=True, eq=False)
class LogDirectory:
    """One of `log.dirs` in use."""

    path: str
    release: Callable[[], None]
    clean: bool
    """Whether the broker that last used the directory shut down cleanly."""
    failure: StorageError | None = None
    remote_type: str | None = None
    """Type of the file system if it is a remote one (`base/mounts`)."""
    write_queue: WriteQueue[Any] | None = None
    """The queue of the directory while it is slow, or always if it is remote."""
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    log_start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    found: list[TopicPartition] = field(default_factory=list)
    """Current logs that are not loaded yet."""
    futures: list[tuple[TopicPartition, str]] = field(default_factory=list)
    """Future logs (of interrupted moves) with the names of their directories."""
    deleted: list[str] = field(default_factory=list)
    """Directories of deleted logs that are not removed yet."""
    point_turns: Turns = field(default_factory=Turns)
    """Turns of the checkpoints of recovery points and log start offsets."""
    mark_turns: Turns = field(default_factory=Turns)
    """Turns of the high watermark checkpoint."""

    def log_path(self, topic_partition: TopicPartition) -> str:
        """Return the directory of a log."""
        return f"{self.path}/{topic_partition}"


def open_directory(files: Files, path: str, owner: MetaProperties) -> LogDirectory:
    """Lock a log directory, check its owner, and list its contents.

    Raises `ConfigError` if another process uses the directory or it belongs to another broker or cluster,
    `StorageError` if the disk fails.
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
        directory.remote_type = files.remote_type(path)
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
    """Return whether the clean-shutdown file exists, and remove it: a crash from now on leaves the logs unclean."""
    mark = f"{path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
    if not files.exists(mark):
        return False
    files.remove(mark)
    files.sync_directory(path)
    return True


def _read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Read a checkpoint. A missing or malformed one counts as empty: 0 is a safe recovery point and log start."""
    try:
        return checkpoints.decode_offsets(files.read(path), path)
    except checkpoints.MalformedCheckpointError as error:
        logger.warning("%s; all its offsets are treated as 0", error)
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
            logger.warning("%s is a stray log: its partition is no longer assigned to this broker", path)
        else:
            logger.warning("%s is not the log of a partition; it is ignored", path)


def parse_log_name(name: str) -> TopicPartition | None:
    """Return the partition of a log directory with this name; None for other names."""
    if name.endswith((DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX)):
        return None
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdecimal()):
        return None
    return TopicPartition(topic, int(partition))


def parse_future_name(name: str) -> TopicPartition | None:
    """Return the partition of a future log directory with this name; None for other names."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    return parse_log_name(name.removesuffix(FUTURE_SUFFIX).rpartition(".")[0])


def future_name(topic_partition: TopicPartition, unique: str) -> str:
    """Return the directory name of a future log. Raises `InvalidTopicError` if the topic's name is too long for it.

    Unlike the name of a deleted log it is not truncated, because the partition is parsed from it after a restart.
    """
    name = f"{topic_partition}.{unique}{FUTURE_SUFFIX}"
    if len(name) > LONGEST_NAME:
        raise InvalidTopicError(
            f"the name of topic {topic_partition.topic} is too long to move its log to another directory"
        )
    return name


def deleted_name(topic_partition: TopicPartition, unique: str) -> str:
    """Return the directory name of a deleted log; the topic is truncated to the name limit of file systems."""
    ending = f"-{topic_partition.partition}.{unique}{DELETE_SUFFIX}"
    return topic_partition.topic[: LONGEST_NAME - len(ending)] + ending


def write_offsets(files: Files, directory: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write one of the offset checkpoints; call it within a turn. Blocks. Raises `StorageError`."""
    files.write_atomically(f"{directory.path}/{name}", checkpoints.encode_offsets(offsets))


def read_high_watermarks(files: Files, directory: LogDirectory) -> dict[TopicPartition, int]:
    """Read the high watermark checkpoint; empty if missing or malformed. Raises `StorageError`."""
    return _read_offsets(files, f"{directory.path}/{checkpoints.HIGH_WATERMARK_FILE}")
