"""Encoders and decoders of the small text files in a log directory, in Kafka's formats.

These are `*-offset-checkpoint`, `leader-epoch-checkpoint`, `meta.properties`, `partition.metadata` and
`.kafka_cleanshutdown`. Other modules read and write the files. Invariant: a decoder returns the whole content or
raises; a partly read checkpoint would silently lose partitions.
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
    """The content of a checkpoint file is invalid; the disk itself works."""


def encode_entries(entries: Iterable[tuple[object, ...]]) -> bytes:
    """Encode a checkpoint: a version line, a count line, then one line per entry with fields separated by spaces."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join([CHECKPOINT_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_entries(content: bytes, path: str) -> list[list[str]]:
    """Return the fields of each entry. Raises `MalformedCheckpointError` for another version, wrong count or no text.

    An empty file has no entries: Kafka creates these files when it opens a log, and never writes to some of them.
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
        raise MalformedCheckpointError(
            f"{path} has version {version!r}: only {CHECKPOINT_VERSION} is supported", path=path
        )
    if len(entries) != count:
        raise MalformedCheckpointError(f"{path} declares {count} entries but has {len(entries)}", path=path)
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode an offset checkpoint, sorted, so that equal content gives equal bytes."""
    return encode_entries((tp.topic, tp.partition, offset) for tp, offset in sorted(offsets.items()))


def decode_offsets(content: bytes, path: str) -> dict[TopicPartition, int]:
    """Return the offset of each partition. Raises `MalformedCheckpointError` if any line is malformed."""
    offsets = {}
    for fields in decode_entries(content, path):
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise MalformedCheckpointError(f"{path} has a malformed line: {' '.join(fields)!r}", path=path) from error
    return offsets


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Encode a leader epoch checkpoint from (epoch, start offset) pairs."""
    return encode_entries(epochs)


def decode_epochs(content: bytes, path: str) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) pairs in file order. Raises `MalformedCheckpointError`."""
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
    """The owner of a log directory (`meta.properties`)."""

    cluster_id: str
    broker_id: int

    def encode(self) -> bytes:
        """Encode the file as a ZooKeeper-mode broker writes it."""
        return f"#\nversion=0\nbroker.id={self.broker_id}\ncluster.id={self.cluster_id}\n".encode()

    @classmethod
    def check(cls, content: bytes, path: str, expected: MetaProperties) -> None:
        """Raise `ConfigError` if the directory does not belong to this broker."""
        properties = _properties(content)
        version = properties.get("version", "0")
        if version != "0":
            raise ConfigError(f"{path} has version {version}: only 0 (ZooKeeper mode) is supported")
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
    """Parse a Java properties file without continuation lines, which no broker writes here."""
    properties = {}
    for line in content.decode("latin-1").splitlines():
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, _, value = text.partition("=")
        properties[key.strip()] = value.strip().replace("\\", "")
    return properties


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Encode `partition.metadata`: the topic id of the log in URL-safe base64 (KIP-516)."""
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}".encode()


def decode_partition_metadata(content: bytes, path: str) -> UUID:
    """Return the topic id. Raises `MalformedCheckpointError` if the file is malformed."""
    try:
        fields = dict(line.split(": ", 1) for line in content.decode().splitlines() if line)
        if fields["version"] != "0":
            raise MalformedCheckpointError(f"{path} has version {fields['version']!r}: only 0 is supported", path=path)
        return UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
    except (UnicodeDecodeError, KeyError, ValueError, binascii.Error) as error:
        raise MalformedCheckpointError(f"{path} is malformed", path=path) from error


def clean_shutdown_mark() -> bytes:
    """Return the content of the clean-shutdown file. Its presence counts; newer brokers also read the broker epoch."""
    return json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":")).encode()
