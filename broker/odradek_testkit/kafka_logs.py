"""Log directories of Apache Kafka: what its own tool says of their files, and the records as a stock client reads them.

A running broker or files enter; text and plain values for JSON leave. The script that makes the golden directories
calls it, and the tests that compare them with ours. Nothing here decodes a record by our own code: it is the judge.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from odradek.testing.waiting import wait_until
from odradek_testkit.apache import QUICK_START, InteropError, java_command

if TYPE_CHECKING:
    from confluent_kafka import Message

DUMP_TOOL: Final = "kafka.tools.DumpLogSegments"
_READ_SECONDS: Final = 60.0
_TOOL_SECONDS: Final = 120.0
_BYTES: Final = "latin-1"
"""One character a byte, so that JSON holds any."""


class PlainRecord(TypedDict):
    """A record as JSON holds it; keys, values and header values have one character for each byte."""

    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 for none."""
    key: str | None
    value: str | None
    headers: list[list[str | None]]


def plain_record(
    offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> PlainRecord:
    """A record of any reader in the form of the golden files."""
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
    """What the tool printed, and what it complained of."""

    printed: str
    complaints: str


def dump_segments(jars: Path, files: Sequence[Path], *options: str, directory: Path | None = None) -> Dump:
    """What Kafka's DumpLogSegments says of the files, all in one run. `InteropError` when it ends with an error.

    With `directory` the paths in its output are relative to that.
    """
    command = java_command(jars, DUMP_TOOL, heap="256m", options=QUICK_START)
    command += ["--files", ",".join(map(str, files)), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TOOL_SECONDS)
    if result.returncode:
        raise InteropError(
            f"{DUMP_TOOL} ended with {result.returncode}: {result.stdout[-2000:]}{result.stderr[-2000:]}"
        )
    prefix = "" if directory is None else f"{directory}/"
    return Dump(*(text.replace(prefix, "") for text in (result.stdout, result.stderr)))


def wait_until_unregistered(zookeeper: str, broker_id: int) -> None:
    """Until ZooKeeper has forgotten a broker that was killed: before, it lets no other one of the id register."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        wait_until(lambda: client.exists(f"/brokers/ids/{broker_id}") is None, what="the end of the broker's session")
    finally:
        client.stop()
        client.close()


def read_topic(
    bootstrap: str, topic: str, *, committed_only: bool = False, properties: Mapping[str, Any] | None = None
) -> list[PlainRecord]:
    """Every record of partition 0 from its start, as librdkafka reads them; with `committed_only` to the last stable
    offset and without aborted ones."""
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
                raise InteropError(f"No end of {topic} within {_READ_SECONDS:g} s after {len(found)} records.")
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
    # The type of headers says more than a message that was read can have: a mapping, names alone.
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
