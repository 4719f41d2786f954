"""`odradek produce`: sends lines as records."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from odradek.base.errors import OdradekError
from odradek.cli.lines import read_lines
from odradek.cli.shared import (
    client_settings,
    connection_options,
    echo_json,
    output_option,
    property_option,
    reporting_errors,
    run,
)

if TYPE_CHECKING:
    from odradek.client.models import SendResult
    from odradek.client.settings import ClientSettings

_MAX_BULKS: Final = 32
"""Maximum number of unacknowledged groups of lines. The producer also limits their memory."""

Pair = tuple[bytes | None, bytes | None]


class NoSeparatorError(OdradekError):
    """A line does not contain the key separator."""


@dataclass(slots=True)
class Summary:
    """Numbers of records that were sent."""

    records: int = 0
    bytes: int = 0
    first_offsets: dict[int, int] = field(default_factory=dict)
    last_offsets: dict[int, int] = field(default_factory=dict)

    def add(self, delivered: SendResult) -> None:
        """Count acknowledged records."""
        self.records += delivered.records
        for batch in delivered.batches:
            last = batch.base_offset + batch.record_count - 1
            self.first_offsets.setdefault(batch.partition, batch.base_offset)
            self.last_offsets[batch.partition] = max(last, self.last_offsets.get(batch.partition, last))

    def value(self, topic: str, seconds: float) -> dict[str, object]:
        """Return the counts for JSON."""
        return {
            "topic": topic,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(seconds, 3),
            "partitions": {
                str(partition): {"first_offset": self.first_offsets[partition], "last_offset": last}
                for partition, last in sorted(self.last_offsets.items())
            },
        }


def split_pairs(lines: Sequence[bytes], separator: bytes | None, *, first_number: int) -> list[Pair]:
    """Return the key and value of each line. Raises `NoSeparatorError` with the number of the line."""
    if separator is None:
        return [(None, line) for line in lines]
    pairs: list[Pair] = []
    for number, line in enumerate(lines, first_number):
        key, found, value = line.partition(separator)
        if not found:
            raise NoSeparatorError(
                f"Line {number} does not contain the key separator {separator.decode('utf-8', 'backslashreplace')!r}: "
                "see --key-separator."
            )
        pairs.append((key, value))
    return pairs


def _unescaped(_context: click.Context, _parameter: click.Parameter, value: str | None) -> bytes | None:
    """Accept `\\t` for a tab."""
    if value == "":
        raise click.BadParameter("must not be empty.")
    return None if value is None else value.replace("\\t", "\t").replace("\\0", "\0").encode()


@click.command()
@click.argument("topic")
@connection_options
@click.option("-f", "--file", "source", type=click.File("rb"), default="-", help="Input file; default: standard input.")
@click.option(
    "-k",
    "--key-separator",
    "separator",
    callback=_unescaped,
    help="Separator between key and value, such as \\t; default: lines have no key.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    help="Send all records to this partition; default: the key determines the partition.",
)
@property_option
@output_option
def produce(
    topic: str,
    *,
    bootstrap: str,
    source: BinaryIO,
    separator: bytes | None,
    partition: int | None,
    properties: Mapping[str, str],
    as_json: bool,
) -> None:
    """Send each line of the input to TOPIC as one record.

    By default the producer is idempotent, and all in-sync replicas acknowledge each record. Change this with -X.

    \b
    Example:
      odradek topic create greetings
      echo 'alice:hello' | odradek produce greetings --key-separator :
      odradek produce events -f events.jsonl -X compression.type=zstd
    """
    began = time.monotonic()
    settings = _settings(bootstrap, properties)
    summary = run(_produce(settings, topic, source, separator=separator, partition=partition))
    seconds = time.monotonic() - began
    if as_json:
        echo_json(summary.value(topic, seconds))
    else:
        rate = summary.records / seconds if seconds > 0 else 0.0
        click.echo(f"{summary.records} records to {topic} in {seconds:.2f} s ({rate:.0f}/s).", err=True)


def _settings(bootstrap: str, properties: Mapping[str, str]) -> ClientSettings:
    with reporting_errors():
        return client_settings(bootstrap, properties, **{"linger.ms": 5})


async def _produce(
    settings: ClientSettings,
    topic: str,
    source: BinaryIO,
    *,
    separator: bytes | None,
    partition: int | None,
) -> Summary:
    from odradek.client.producer.producer import Producer

    if not settings.allow_auto_create_topics:
        await _require(settings, topic)
    summary = Summary()
    waiting: deque[asyncio.Future[SendResult]] = deque()
    with _progress(source) as advance:
        async with Producer(settings) as producer:
            number = 1
            async for lines in read_lines(source.fileno()):
                now = time.time_ns() // 1_000_000
                pairs = split_pairs(lines, separator, first_number=number)
                number += len(lines)
                size = sum(map(len, lines))
                summary.bytes += size
                bulk = [(key, value, now) for key, value in pairs]
                waiting.append(await producer.send_many(topic, bulk, partition=partition))
                while waiting and (waiting[0].done() or len(waiting) > _MAX_BULKS):
                    summary.add(await waiting.popleft())
                advance(size + len(lines))
            await producer.flush()
            for future in waiting:
                summary.add(await future)
    return summary


async def _require(settings: ClientSettings, topic: str) -> None:
    """Raise an error if the topic does not exist, where a producer would wait."""
    from odradek.client.admin import Admin

    async with Admin(settings) as admin:
        await admin.describe_topics([topic])


@contextmanager
def _progress(source: BinaryIO) -> Iterator[Callable[[int], object]]:
    """Yield a function that advances a progress bar. It is shown only on a terminal and if the input is a file."""
    status = os.fstat(source.fileno())
    if not (stat.S_ISREG(status.st_mode) and sys.stderr.isatty()):
        yield lambda size: None
        return
    # Imported here because rich takes longer to import than everything else together.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("produce", total=status.st_size)
        yield lambda size: progress.advance(task, size)
