"""The small text files of a log directory, in Kafka's formats.

Values enter, file content leaves, and the other way round: `*-offset-checkpoint`, `leader-epoch-checkpoint`,
`meta.properties`, `partition.metadata` and `.kafka_cleanshutdown`. `log.manager` and `log.recovery` do the reading and
writing.
Invariant: decoding either gives the whole content or raises; a half-read checkpoint would silently
forget partitions.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.base.errors import ConfigError, StorageError
from odradek.base.types import TopicPartition

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
META_PROPERTIES_FILE: Final = "meta.properties"
PARTITION_METADATA_FILE: Final = "partition.metadata"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
LOCK_FILE: Final = ".lock"

CHECKPOINT_VERSION: Final = "0"


class MalformedCheckpointError(StorageError):
    """The content of one of these files is not what it should be; the disk itself works."""


def encode_entries(entries: Iterable[tuple[object, ...]]) -> bytes:
    """A checkpoint: version line, count line, one line an entry with its fields separated by blanks."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join([CHECKPOINT_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_entries(content: bytes, path: str) -> list[list[str]]:
    """Fields of each entry line. `MalformedCheckpointError` for another version, a wrong count or no text.

    An empty file has no entries: Kafka makes the files when it opens a log, and some it never writes to.
    """
    if not content:
        return []
    try:
        lines = content.decode().splitlines()
        version, count = lines[0], int(lines[1])
    except (UnicodeDecodeError, IndexError, ValueError) as error:
        raise MalformedCheckpointError(f"{path} is not a checkpoint file", path=path) from error
    entries = [line.split() for line in lines[2:]]
    if version != CHECKPOINT_VERSION:
        raise MalformedCheckpointError(f"{path} has version {version!r}, only {CHECKPOINT_VERSION} is known", path=path)
    if len(entries) != count:
        raise MalformedCheckpointError(f"{path} promises {count} entries and has {len(entries)}", path=path)
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """An offset checkpoint; sorted, so that equal content gives equal bytes."""
    return encode_entries((tp.topic, tp.partition, offset) for tp, offset in sorted(offsets.items()))


def decode_offsets(content: bytes, path: str) -> dict[TopicPartition, int]:
    """The offset of each partition. `MalformedCheckpointError` for anything else than whole, well-formed lines."""
    offsets = {}
    for fields in decode_entries(content, path):
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise MalformedCheckpointError(f"{path} has a malformed line: {' '.join(fields)!r}", path=path) from error
    return offsets


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """A leader-epoch checkpoint from (epoch, start offset) pairs."""
    return encode_entries(epochs)


def decode_epochs(content: bytes, path: str) -> list[tuple[int, int]]:
    """(epoch, start offset) pairs as they stand in the file."""
    epochs = []
    for fields in decode_entries(content, path):
        try:
            epoch, start_offset = fields
            epochs.append((int(epoch), int(start_offset)))
        except ValueError as error:
            raise MalformedCheckpointError(f"{path} has a malformed line: {' '.join(fields)!r}", path=path) from error
    return epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Whose log directory it is."""

    cluster_id: str
    broker_id: int

    def encode(self) -> bytes:
        """The file as a ZooKeeper-mode broker writes it."""
        return f"#\nversion=0\nbroker.id={self.broker_id}\ncluster.id={self.cluster_id}\n".encode()

    @classmethod
    def check(cls, content: bytes, path: str, expected: MetaProperties) -> None:
        """Raise `ConfigError`, in one sentence for a person, when the directory is not this broker's."""
        properties = _properties(content)
        version = properties.get("version", "0")
        if version != "0":
            raise ConfigError(f"{path} has version {version}: only 0, of brokers on ZooKeeper, is supported")
        cluster_id = properties.get("cluster.id")
        if cluster_id is not None and cluster_id != expected.cluster_id:
            raise ConfigError(
                f"{path} belongs to cluster {cluster_id!r}, but ZooKeeper's cluster is {expected.cluster_id!r}: "
                "check zookeeper.connect and log.dirs"
            )
        broker_id = properties.get("broker.id")
        if broker_id is not None and broker_id != str(expected.broker_id):
            raise ConfigError(
                f"{path} belongs to broker {broker_id}, but broker.id is {expected.broker_id}: "
                "use that id or another log directory"
            )


def _properties(content: bytes) -> dict[str, str]:
    """A Java properties file without continuation lines, which no broker writes here."""
    properties = {}
    for line in content.decode("latin-1").splitlines():
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, _, value = text.partition("=")
        properties[key.strip()] = value.strip().replace("\\", "")
    return properties


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """`partition.metadata`: the topic id that the log belongs to, in URL-safe base64 (KIP-516)."""
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}".encode()


def decode_partition_metadata(content: bytes, path: str) -> UUID:
    """The topic id. `MalformedCheckpointError` when the file is malformed."""
    try:
        fields = dict(line.split(": ", 1) for line in content.decode().splitlines() if line)
        if fields["version"] != "0":
            raise MalformedCheckpointError(f"{path} has version {fields['version']!r}, only 0 is known", path=path)
        return UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
    except (UnicodeDecodeError, KeyError, ValueError, binascii.Error) as error:
        raise MalformedCheckpointError(f"{path} is malformed", path=path) from error


def clean_shutdown_mark() -> bytes:
    """Content of the clean-shutdown file; brokers look at its presence, newer ones also read the broker epoch."""
    return json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":")).encode()
