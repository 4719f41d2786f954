"""`odradek log`: shows and checks the files of a log, and compacts one, without a broker.

The tools are imported when they are used. Exit code 0 means success, 1 that a file is damaged or that the operation
was refused, and 2 that the arguments are wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.cli.shared import document, output_option, reporting_errors

if TYPE_CHECKING:
    from odradek.cli.logs.compact import CompactReport
    from odradek.cli.logs.dump import Line

_DECODERS: Final = ("string", "integer", "long", "double", "hex")
_LOG_DECODERS: Final = ("offsets-topic", "transaction-log")
_ALL_BYTES: Final = (1 << 31) - 1
_LINES_AT_ONCE: Final = 500


@click.group()
def log() -> None:
    """Show and check the files of a log, or compact a log, without a broker.

    \b
    Example:
      odradek log dump /data/orders-0 --print-data-log
      odradek log verify /data
      odradek log compact /data/orders-0
    """


@log.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIRECTORY…", type=click.Path(path_type=Path))
@click.option("-d", "--deep-iteration", "deep", is_flag=True, help="Show records, not only batches.")
@click.option(
    "-p", "--print-data-log", "contents", is_flag=True, help="Also show keys and values; implies --deep-iteration."
)
@click.option(
    "--value-decoder",
    type=click.Choice([*_DECODERS, *_LOG_DECODERS]),
    help="Format of values. offsets-topic and transaction-log decode keys and values of the internal topics. "
    "Implies --print-data-log.",
)
@click.option("--key-decoder", type=click.Choice(_DECODERS), help="Format of keys. Implies --print-data-log.")
@click.option(
    "--index-sanity-check", "sanity_only", is_flag=True, help="Only check whether a broker would accept each index."
)
@click.option(
    "--verify-index-only", "verify_only", is_flag=True, help="Compare indexes with the log, without showing entries."
)
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    default=_ALL_BYTES,
    metavar="BYTES",
    help="Read at most this many bytes of each .log file.  [default: all]",
)
@click.option(
    "--skip-record-metadata", is_flag=True, help="With --print-data-log, omit everything but keys and values."
)
@output_option
def dump(
    *,
    paths: tuple[Path, ...],
    contents: bool,
    value_decoder: str | None,
    key_decoder: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show the content of log files in the format of Kafka's DumpLogSegments.

    For a directory, the command shows all its files and those of its partitions: .log, .index, .timeindex, .txnindex,
    .snapshot and the checkpoint files. With --output json or yaml, each line becomes one document. If there are errors
    in the files, the command lists them at the end on standard error and exits with code 1.

    \b
    Example:
      odradek log dump /data/orders-0/00000000000000000000.log --deep-iteration
      odradek log dump /data/orders-0 --print-data-log --key-decoder long
      odradek log dump /data/__consumer_offsets-7 --value-decoder offsets-topic
      odradek log dump /data/orders-0/*.index --verify-index-only
    """
    from odradek.cli.logs import dump as log_dump
    from odradek.cli.logs.files import files_to_dump

    contents = contents or value_decoder is not None or key_decoder is not None
    decoder = _decoder(key_decoder, value_decoder) if contents else None
    options["deep"] = options["deep"] or contents
    wanted = log_dump.DumpOptions(decoder=decoder, **options)
    complaints = log_dump.Complaints()
    with reporting_errors():
        for path in files_to_dump(paths):
            _print(path, log_dump.dump_file(path, wanted, complaints), as_json=as_json)
    for line in complaints.lines():
        click.echo(line, err=True)
    if complaints.faults:
        sys.exit(1)


def _decoder(key: str | None, value: str | None) -> Any:
    from odradek.cli.logs.decoders import DECODERS, LOG_DECODERS, by_field

    if value in LOG_DECODERS:
        if key is not None:
            raise click.UsageError(f"--value-decoder {value} also shows the key: omit --key-decoder.")
        return LOG_DECODERS[value]
    return by_field(DECODERS[key or "string"], DECODERS[value or "string"])


def _print(path: Path, lines: Iterable[Line], *, as_json: bool) -> None:
    """Write several lines per call, because each `click.echo` flushes."""
    shown: list[str] = []
    try:
        for line in lines:
            if not as_json:
                shown.append(line.text())
            elif line.kind != "file":
                shown.append(document({"file": str(path), **line.plain()}))
            if len(shown) >= _LINES_AT_ONCE:
                click.echo("\n".join(shown))
                shown.clear()
    finally:
        if shown:
            click.echo("\n".join(shown))


@log.command()
@click.argument("paths", nargs=-1, required=True, metavar="DIRECTORY…", type=click.Path(path_type=Path))
@click.option("--deep", is_flag=True, help="Also decompress and decode every record. This is several times slower.")
@click.option(
    "--notes",
    is_flag=True,
    help="Also show harmless findings, such as leftover files and offset gaps that compaction leaves.",
)
@click.option("-j", "--jobs", type=click.IntRange(1), help="Number of processes.  [default: number of processors]")
@output_option
def verify(*, paths: tuple[Path, ...], deep: bool, notes: bool, jobs: int | None, as_json: bool) -> None:
    """Check every byte of logs, without changing anything.

    A DIRECTORY is an entry of log.dirs, or the directory of one partition in it. The command checks CRCs, offsets,
    lengths, indexes, aborted transactions, producer snapshots, leader epochs and checkpoints, and lists leftover files.
    A finding is an error if data is damaged or would be read incorrectly, and a warning if a broker repairs it by
    itself. The exit code is 1 if there is an error. Stop the broker first if possible: a running broker changes files
    while they are checked.

    \b
    Example:
      odradek log verify /data
      odradek log verify /data/orders-0 --deep --notes
      odradek log verify /data --output json
    """
    from odradek.cli import tables
    from odradek.cli.logs import verify as log_verify
    from odradek.cli.logs.findings import Severity
    from odradek.cli.shared import echo_json

    with reporting_errors(), progress_bar("Checking") as progress:
        report = log_verify.verify(paths, deep=deep, jobs=jobs, progress=progress)
    if as_json:
        echo_json(report.plain())
    else:
        tables.show([report.table(notes=notes)])
        click.echo(report.summary())
    if report.count(Severity.ERROR):
        sys.exit(1)


@log.command()
@click.argument("paths", nargs=-1, required=True, metavar="DIRECTORY…", type=click.Path(path_type=Path))
@click.option(
    "--dirty-from",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="First offset that is not compacted yet; default: the checkpoint.",
)
@click.option(
    "--up-to",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="High watermark: records below it are replicated; default: the checkpoint.",
)
@click.option(
    "--delete-retention-ms",
    type=click.IntRange(0),
    default=86_400_000,
    show_default=True,
    help="How long tombstones and transaction markers are kept.",
)
@click.option(
    "--min-compaction-lag-ms",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Do not compact records that are younger than this.",
)
@click.option(
    "--segment-bytes",
    type=click.IntRange(14),
    default=1 << 30,
    show_default=True,
    help="Maximum size of a compacted segment.",
)
@click.option(
    "--map-bytes",
    type=click.IntRange(1 << 16),
    default=128 << 20,
    show_default=True,
    help="Memory for the map of keys, 24 bytes per key. If it does not hold all keys, run the command again.",
)
@output_option
def compact(*, paths: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Compact logs as their broker does. Stop the broker first.

    A DIRECTORY is the directory of one partition. The command does not change the active segment, records that are not
    replicated yet, or records of open transactions. It can be interrupted at any time: the next start of the broker
    repairs the log. The default values are Kafka's, so look up the settings of the topic and pass them as options. For
    a log that was never compacted, --dirty-from is required, because its topic may not have cleanup.policy=compact.

    \b
    Example:
      odradek log compact /data/customers-0
      odradek log compact /data/customers-0 --dirty-from 0 --delete-retention-ms 0 --segment-bytes 104857600
    """
    from odradek.cli.logs import compact as log_compact
    from odradek.cli.shared import echo_json

    settings = log_compact.CompactSettings(**options)
    for path in paths:
        with reporting_errors(), progress_bar(f"Compacting {path.name}") as progress:
            report = log_compact.compact(path, settings, progress)
        if as_json:
            echo_json(report.plain())
        else:
            _show_compacted(report)


def _show_compacted(report: CompactReport) -> None:
    from odradek.cli.tables import Column, Table, show

    if report.reason:
        click.echo(f"{report.path}: nothing to compact: {report.reason}.")
        return
    rows = (
        ("segments", f"{report.segments_before:,}", f"{report.segments_after:,}"),
        ("bytes", f"{report.bytes_before:,}", f"{report.bytes_after:,}"),
        ("records read and kept", f"{report.records_before:,}", f"{report.records_after:,}"),
    )
    if report.keyless_records:
        click.echo(f"Warning: {report.keyless_records:,} records without a key were dropped.", err=True)
    done = f"dirty from {report.dirty_from}, now clean up to {report.clean_up_to}, in {report.seconds:.1f} s"
    show([Table(f"{report.path}: {done}", (Column(""), Column("BEFORE", True), Column("AFTER", True)), rows)])


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the number of bytes done and the total.

    The progress bar is shown on standard error, only in a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
