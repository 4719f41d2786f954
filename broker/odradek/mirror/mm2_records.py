"""The records of MirrorMaker 2's internal topics, byte for byte: offset syncs, checkpoints and heartbeats.

Source: the classes OffsetSync, Checkpoint and Heartbeat in `connect/mirror` and `connect/mirror-client` of Apache Kafka
3.9 (KIP-382). `offset_syncs` and `group_follower` write and read them. Numbers are big-endian, and a text has its
length in two bytes. Values of checkpoints and heartbeats begin with the version 0; offset syncs have no version.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition

RECORD_VERSION: Final = 0
"""The version of checkpoints and heartbeats."""
MAX_TEXT_BYTES: Final = 2**15 - 1

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_PAIR: Final = struct.Struct(">qq")


def offset_syncs_topic(source: str) -> str:
    """Return the topic of the offset syncs of a source in the target."""
    return f"mm2-offset-syncs.{source}.internal"


def checkpoints_topic(source: str) -> str:
    """Return the topic of the checkpoints of a source in the target."""
    return f"{source}.checkpoints.internal"


class OffsetSync(NamedTuple):
    """An offset of a source partition, and the offset in the target that has the same record."""

    partition: TopicPartition
    """The partition in the source."""
    source_offset: int
    target_offset: int

    def key(self) -> bytes:
        """Return the key: topic and partition."""
        return _text(self.partition.topic) + _INT.pack(self.partition.partition)

    def value(self) -> bytes:
        """Return the value: the two offsets."""
        return _PAIR.pack(self.source_offset, self.target_offset)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> OffsetSync:
        """Return the sync in a record. Raises `ConfigError` for any other record."""
        read = _Reader(value, "an offset sync")
        source_offset, target_offset = read.long(), read.long()
        read.end()
        return cls(sync_partition(key), source_offset, target_offset)


def sync_partition(key: bytes) -> TopicPartition:
    """Return the source partition in the key of an offset sync. Raises `ConfigError` for any other key."""
    read = _Reader(key, "the key of an offset sync")
    partition = TopicPartition(read.text(), read.integer())
    read.end()
    return partition


class Checkpoint(NamedTuple):
    """The committed offset of a group in a source partition, and the offset in the target where the group continues."""

    group: str
    partition: TopicPartition
    """The partition in the target."""
    source_offset: int
    target_offset: int
    metadata: str = ""
    """The text that the application committed with the offset."""

    def key(self) -> bytes:
        """Return the key: group, topic and partition."""
        return _text(self.group) + _text(self.partition.topic) + _INT.pack(self.partition.partition)

    def value(self) -> bytes:
        """Return the value: version, both offsets, and metadata."""
        return _SHORT.pack(RECORD_VERSION) + _PAIR.pack(self.source_offset, self.target_offset) + _text(self.metadata)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Checkpoint:
        """Return the checkpoint in a record. Raises `ConfigError` for any other record."""
        read = _Reader(key, "the key of a checkpoint")
        group, topic, partition = read.text(), read.text(), read.integer()
        read.end()
        read = _Reader(value, "a checkpoint")
        read.version()
        found = cls(group, TopicPartition(topic, partition), read.long(), read.long(), read.text())
        read.end()
        return found


class Heartbeat(NamedTuple):
    """A sign that a mirror runs from one cluster to another."""

    source: str
    """Alias of the source."""
    target: str
    """Alias of the target: the name of the mirror."""
    timestamp_ms: int
    """Milliseconds since 1970 UTC."""

    def key(self) -> bytes:
        """Return the key: both aliases."""
        return _text(self.source) + _text(self.target)

    def value(self) -> bytes:
        """Return the value: version and time."""
        return _SHORT.pack(RECORD_VERSION) + _LONG.pack(self.timestamp_ms)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Heartbeat:
        """Return the heartbeat in a record. Raises `ConfigError` for any other record."""
        read = _Reader(key, "the key of a heartbeat")
        source, target = read.text(), read.text()
        read.end()
        read = _Reader(value, "a heartbeat")
        read.version()
        found = cls(source, target, read.long())
        read.end()
        return found


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > MAX_TEXT_BYTES:
        raise ConfigError(f"{text[:40]!r}... has {len(data)} bytes: MirrorMaker 2 allows {MAX_TEXT_BYTES}")
    return _SHORT.pack(len(data)) + data


class _Reader:
    """Reads the fields of a key or value in order."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._position = 0

    def _take(self, length: int) -> bytes:
        taken = self._data[self._position : self._position + length]
        if length < 0 or len(taken) < length:
            raise ConfigError(f"{self._what} of MirrorMaker 2 ends after {len(self._data)} bytes, in the middle")
        self._position += length
        return taken

    def integer(self) -> int:
        found: int = _INT.unpack(self._take(_INT.size))[0]
        return found

    def long(self) -> int:
        found: int = _LONG.unpack(self._take(_LONG.size))[0]
        return found

    def text(self) -> str:
        length: int = _SHORT.unpack(self._take(_SHORT.size))[0]
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self._what} of MirrorMaker 2 contains a text that is not UTF-8") from error

    def version(self) -> None:
        version: int = _SHORT.unpack(self._take(_SHORT.size))[0]
        if version != RECORD_VERSION:
            raise ConfigError(
                f"{self._what} of MirrorMaker 2 has the version {version}: only {RECORD_VERSION} is known"
            )

    def end(self) -> None:
        if self._position != len(self._data):
            raise ConfigError(f"{self._what} of MirrorMaker 2 has {len(self._data) - self._position} bytes too many")
