"""Reads logs with Apache Kafka's DumpLogSegments tool and with librdkafka, for golden files and comparisons.

The script that creates the golden directories uses it, and so do the tests that compare them with this project's logs.
It uses none of this project's decoders, because it is the reference for them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import InteropError, java_command, quick_start

if TYPE_CHECKING:
    from confluent_kafka import Message

DUMP_TOOL: Final = "kafka.tools.DumpLogSegments"
_READ_SECONDS: Final = 60.0
_TOOL_SECONDS: Final = 120.0
_BYTES: Final = "latin-1"
"""One character per byte, so that JSON can represent all bytes."""


class PlainRecord(TypedDict):
    """A record as in JSON; keys, values and header values have one character for each byte."""

    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 for none."""
    key: str | None
    value: str | None
    headers: list[list[str | None]]


def plain_record(
    offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> PlainRecord:
    """Return a record of any reader in the form of the golden files."""
    return {
        "offset": offset,
        "timestamp": timestamp,
        "key": _text(key),
        "value": _text(value),
        "headers": [[name, _text(content)] for name, content in headers],
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(_BYTES)


class Dump(NamedTuple):
    """Standard output and standard error of the tool."""

    printed: str
    complaints: str


def dump_segments(jars: Path, files: Sequence[Path], *options: str, directory: Path | None = None) -> Dump:
    """Return the output of Kafka's DumpLogSegments for all files in one run. Raises `InteropError` if it fails.

    With `directory`, the paths in the output are relative to it.
    """
    command = java_command(jars, DUMP_TOOL, heap="256m", options=quick_start(jars))
    command += ["--files", ",".join(map(str, files)), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TOOL_SECONDS)
    if result.returncode:
        raise InteropError(
            f"{DUMP_TOOL} failed with exit code {result.returncode}: {result.stdout[-2000:]}{result.stderr[-2000:]}"
        )
    prefix = "" if directory is None else f"{directory}/"
    return Dump(*(text.replace(prefix, "") for text in (result.stdout, result.stderr)))


def wait_until_unregistered(zookeeper: str, broker_id: int) -> None:
    """Wait until the session of a killed broker has expired: until then no other broker with its id can register."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        wait_until(
            lambda: client.exists(f"/brokers/ids/{broker_id}") is None, what="the expiry of the broker's session"
        )
    finally:
        client.stop()
        client.close()


def read_topic(
    bootstrap: str, topic: str, *, committed_only: bool = False, properties: Mapping[str, Any] | None = None
) -> list[PlainRecord]:
    """Return all records of partition 0 as librdkafka reads them.

    With `committed_only`, it reads up to the last stable offset and omits the records of aborted transactions."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            **(properties or {}),
        }
    )
    found: list[PlainRecord] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(_READ_SECONDS)
            if message is None:
                raise InteropError(
                    f"The end of {topic} was not reached within {_READ_SECONDS:g} s, after {len(found)} records."
                )
            error = message.error()
            if error is None:
                found.append(_plain(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise InteropError(f"{topic}: {error}")
    finally:
        consumer.close()


def _plain(message: Message) -> PlainRecord:
    kind, timestamp = message.timestamp()
    offset = message.offset()
    assert offset is not None, "a record has an offset"
    # The declared type of headers is wider than what a consumed message can have (a mapping, names only).
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return plain_record(
        offset,
        timestamp if kind else -1,
        _as_bytes(message.key()),
        _as_bytes(message.value()),
        [(name, _as_bytes(content)) for name, content in headers],
    )


def _as_bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
