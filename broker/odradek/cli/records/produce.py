"""`odradek produce`: sends lines, JSON objects or whole files as records."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.base.errors import OdradekError
from odradek.cli.completion.completers import complete_topics
from odradek.cli.records.lines import read_lines
from odradek.cli.records.record_input import Headers, LineFormat, OutgoingRecord, json_records
from odradek.cli.records.time_options import parse_time
from odradek.cli.shared import (
    client_settings,
    connection_options,
    echo_json,
    output_option,
    pairs,
    property_option,
    reporting_errors,
    run,
)

if TYPE_CHECKING:
    from odradek.cli.records.sending import RecordSender, SendOptions, Summary
    from odradek.client.settings import ClientSettings

STDIN: Final = "-"
_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}


class FileTooLargeError(OdradekError):
    """A file is too large for one record."""


class FileUnreadableError(OdradekError):
    """An input file cannot be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """Where records come from, and how they are written there."""

    sources: tuple[str, ...] = (STDIN,)
    """Files, and folders with `whole`; `-` is standard input."""
    is_json: bool = False
    whole: bool = False
    """Whether a file is one record."""
    name_as_key: bool = False
    """Whether the name of a file is the key of its record."""
    line_format: LineFormat = field(default_factory=LineFormat)

    def check(self, *, key: str | None) -> None:
        """Raise `click.UsageError` for options that contradict each other."""
        lines = self.line_format
        dividing = lines != LineFormat()
        if self.is_json and (self.whole or dividing):
            raise click.UsageError("--input json cannot be combined with --whole or with options that divide lines.")
        if self.whole and dividing:
            raise click.UsageError("--whole cannot be combined with options that divide lines.")
        if self.name_as_key and (not self.whole or key is not None):
            raise click.UsageError("--name-as-key needs --whole and cannot be combined with --key.")
        if lines.keys_only and (lines.key_separator is not None or lines.empty_as_null):
            raise click.UsageError("--tombstone cannot be combined with --key-separator or --empty-as-null.")
        if key is not None and lines.key_separator is not None:
            raise click.UsageError("--key cannot be combined with --key-separator.")
        for source in self.sources:
            if source != STDIN and Path(source).is_dir() and not self.whole:
                raise click.UsageError(f"{source} is a directory: use --whole to send each of its files as a record.")

    def files(self) -> list[str]:
        """Return the files, with those of directories in the order of their names. Subdirectories are left out."""
        found: list[str] = []
        for source in self.sources:
            if source != STDIN and Path(source).is_dir():
                found += [str(path) for path in sorted(Path(source).iterdir()) if path.is_file()]
            else:
                found.append(source)
        return found


def _text(_context: click.Context, _parameter: click.Parameter, value: str | None) -> bytes | None:
    """Accept `\\t`, `\\n` and `\\0`. Raises `click.BadParameter` for an empty text."""
    if value == "":
        raise click.BadParameter("must not be empty.")
    for typed, meant in _ESCAPES.items():
        value = None if value is None else value.replace(typed, meant)
    return None if value is None else value.encode()


def _headers(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> Headers:
    """Return headers in their order. A name may occur several times. Raises `click.BadParameter`."""
    return tuple((name, text.encode()) for value in values for name, text in pairs([value]).items())


def input_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `InputOptions` and `LineFormat`."""
    for option in reversed(
        (
            click.option(
                "-f",
                "--file",
                "sources",
                multiple=True,
                default=(STDIN,),
                type=click.Path(exists=True, allow_dash=True),
                help="Input file; repeatable. With --whole, also a directory.  [default: standard input]",
            ),
            click.option(
                "-i",
                "--input",
                "form",
                type=click.Choice(["lines", "json"]),
                default="lines",
                show_default=True,
                help="Format of the input: a record is a line, or a JSON object on one line.",
            ),
            click.option(
                "--whole", is_flag=True, help="Send each file as one record; of a directory, each of its files."
            ),
            click.option("--name-as-key", is_flag=True, help="With --whole, the key is the name of the file."),
            click.option(
                "-k",
                "--key-separator",
                callback=_text,
                help="Separator between key and value, such as \\t; default: lines have no key.",
            ),
            click.option(
                "--headers-delimiter",
                callback=_text,
                help="Text after the headers at the start of each line, such as \\t; default: lines have no headers.",
            ),
            click.option(
                "--headers-separator", callback=_text, default=",", show_default=True, help="Text between two headers."
            ),
            click.option(
                "--header-key-separator",
                callback=_text,
                default=":",
                show_default=True,
                help="Text between the name and the value of a header.",
            ),
            click.option("--null-marker", callback=_text, help="A key, value or header with this text is null."),
            click.option("--empty-as-null", is_flag=True, help="An empty value is null: a tombstone."),
            click.option(
                "--tombstone", "keys_only", is_flag=True, help="Lines are keys. The values are null: tombstones."
            ),
        )
    ):
        command = option(command)
    return command


def record_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for all records, and for the producer."""
    for option in reversed(
        (
            click.option("--key", help="Key of all records that have none."),
            click.option(
                "-H",
                "--header",
                "headers",
                multiple=True,
                metavar="NAME=VALUE",
                callback=_headers,
                help="Header of all records; repeatable.",
            ),
            click.option(
                "--timestamp",
                "timestamp_ms",
                callback=parse_time,
                help="Timestamp of records that have none: ISO 8601, milliseconds since 1970, or such as -1h.  "
                "[default: now]",
            ),
            click.option(
                "-p",
                "--partition",
                type=click.IntRange(0),
                help="Send all records to this partition; default: the key determines the partition.",
            ),
            click.option("-z", "--compression", type=click.Choice(_COMPRESSIONS), help="Compression of batches."),
            click.option(
                "--acks",
                type=click.Choice(["0", "1", "all"]),
                help="Acknowledgements to wait for: none, of the leader, or of all in-sync replicas.",
            ),
            click.option(
                "--rate", type=click.FloatRange(0, min_open=True), help="Maximum number of records per second."
            ),
        )
    ):
        command = option(command)
    return command


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@connection_options
@input_options
@record_options
@property_option
@output_option
def produce(
    topic: str, *, bootstrap: str, properties: Mapping[str, str], as_json: bool, form: str, **options: Any
) -> None:
    """Send each line of the input to TOPIC as one record.

    By default the producer is idempotent, and all in-sync replicas acknowledge each record.

    With --input json, a line is a JSON object such as {"key": "alice", "value": "hello", "headers": [{"name": "source",
    "value": "web"}], "timestamp": 1357016400000, "partition": 0}. Only the value is required. value null is a
    tombstone, and key_base64 and value_base64 have bytes in base64. The output of `odradek consume --output json` is
    accepted.

    \b
    Example:
      odradek topic create greetings
      echo 'alice:hello' | odradek produce greetings --key-separator :
      echo 'source:web;alice=hello' | odradek produce greetings --headers-delimiter ';' -k =
      echo alice | odradek produce greetings --tombstone
      echo '{"key": "bob", "value": "hi", "headers": {"source": "web"}}' | odradek produce greetings -i json
      odradek produce events -f events.jsonl --compression zstd --rate 1000
      odradek produce images -f photos/ --whole --name-as-key
    """
    from odradek.cli.records.sending import SendOptions

    began = time.monotonic()
    given = _input_options(form, options)
    given.check(key=options["key"])
    for option, name in (("acks", "acks"), ("compression", "compression.type")):
        if options[option] is not None:
            properties = {**properties, name: options[option]}
    with reporting_errors():
        settings = client_settings(bootstrap, properties, **{"linger.ms": 5})
    for_all = SendOptions(
        topic=topic,
        partition=options["partition"],
        key=None if options["key"] is None else options["key"].encode(),
        headers=options["headers"],
        timestamp_ms=options["timestamp_ms"],
        rate=options["rate"],
    )
    summary = run(_produce(settings, given, for_all))
    seconds = time.monotonic() - began
    if as_json:
        echo_json(summary.value(topic, seconds))
    else:
        rate = summary.records / seconds if seconds > 0 else 0.0
        click.echo(f"{summary.records} records to {topic} in {seconds:.2f} s ({rate:.0f}/s).", err=True)


def _input_options(form: str, options: Mapping[str, Any]) -> InputOptions:
    lines = LineFormat(
        key_separator=options["key_separator"],
        headers_delimiter=options["headers_delimiter"],
        headers_separator=options["headers_separator"],
        header_key_separator=options["header_key_separator"],
        null_marker=options["null_marker"],
        empty_as_null=options["empty_as_null"],
        keys_only=options["keys_only"],
    )
    return InputOptions(
        sources=options["sources"],
        is_json=form == "json",
        whole=options["whole"],
        name_as_key=options["name_as_key"],
        line_format=lines,
    )


async def _produce(settings: ClientSettings, given: InputOptions, for_all: SendOptions) -> Summary:
    from odradek.cli.records.sending import RecordSender
    from odradek.client.producer.producer import Producer

    if not settings.allow_auto_create_topics:
        await _require(settings, for_all.topic)
    files = given.files()
    async with Producer(settings) as producer:
        sender = RecordSender(producer, for_all)
        with _progress(files) as advance:
            for path in files:
                if given.whole:
                    record, size = _whole(path, given, most=settings.max_request_size)
                    await sender.send([record])
                    sender.summary.bytes += size
                    advance(size)
                else:
                    await _send_lines(path, given, sender, advance)
            return await sender.finish()


async def _send_lines(path: str, given: InputOptions, sender: RecordSender, advance: Callable[[int], object]) -> None:
    with _opened(path) as descriptor:
        number = 1
        async for lines in read_lines(descriptor):
            if given.is_json:
                records = json_records(lines, first_number=number)
            else:
                records = given.line_format.records(lines, first_number=number)
            number += len(lines)
            await sender.send(records)
            size = sum(map(len, lines))
            sender.summary.bytes += size
            advance(size + len(lines))


def _whole(path: str, given: InputOptions, *, most: int) -> tuple[OutgoingRecord, int]:
    """Return the record of a file, and its size. Raises `FileTooLargeError`."""
    with _opened(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise FileTooLargeError(
            f"{path} has more than {most} bytes, the maximum size of a record: raise max.request.size with -X, and "
            "max.message.bytes of the topic."
        )
    key = Path(path).name.encode() if given.name_as_key else None
    return OutgoingRecord(key, content), len(content)


async def _require(settings: ClientSettings, topic: str) -> None:
    """Raise an error if the topic does not exist, where a producer would wait."""
    from odradek.client.admin import Admin

    async with Admin(settings) as admin:
        await admin.describe_topics([topic])


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Yield the descriptor of a file, or of standard input. Raises `FileUnreadableError`."""
    if path == STDIN:
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise FileUnreadableError(f"{path} cannot be read: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _progress(files: Sequence[str]) -> Iterator[Callable[[int], object]]:
    """Yield a function that advances a progress bar. It is shown only on a terminal and if the input is in files."""
    states = [os.fstat(sys.stdin.fileno()) if path == STDIN else os.stat(path) for path in files]
    if not (all(stat.S_ISREG(state.st_mode) for state in states) and sys.stderr.isatty()):
        yield lambda size: None
        return
    # Imported here because rich takes longer to import than everything else together.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("produce", total=sum(state.st_size for state in states))
        yield lambda size: progress.advance(task, size)
