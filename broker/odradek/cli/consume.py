"""`odradek consume`: prints records as lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from odradek.base.errors import UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.cli.shared import (
    client_settings,
    connection_options,
    output_option,
    property_option,
    reporting_errors,
    run,
)

if TYPE_CHECKING:
    from odradek.cli.record_templates import Render
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.models import ConsumerRecord
    from odradek.client.settings import ClientSettings

_POLL_MS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """The options of the command."""

    topic: str
    partitions: tuple[int, ...] = ()
    """The partitions to read; empty for all."""
    group: str | None = None
    from_beginning: bool = False
    offset: int | None = None
    timestamp_ms: int | None = None
    max_records: int | None = None
    until_end: bool = False

    def check(self) -> None:
        """Raise `click.UsageError` for options that contradict each other."""
        starts = [self.from_beginning, self.offset is not None, self.timestamp_ms is not None]
        if sum(starts) > 1:
            raise click.UsageError("--from-beginning, --offset and --from-time are mutually exclusive.")
        if self.group is not None and (self.offset is not None or self.timestamp_ms is not None or self.partitions):
            raise click.UsageError(
                "--group cannot be combined with --offset, --from-time or --partition: "
                "the group determines the partitions and the start offsets."
            )
        if self.offset is not None and len(self.partitions) != 1:
            raise click.UsageError("--offset needs exactly one --partition.")
        if self.group is not None and self.until_end:
            raise click.UsageError("--until-end cannot be used with --group.")


def parse_time(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Parse an ISO 8601 time (UTC without a zone) or a number of milliseconds since 1970; returns milliseconds."""
    if value is None:
        return None
    if value.isdecimal():
        return int(value)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither an ISO 8601 time such as 2013-01-01T05:00:00 nor a number of milliseconds."
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)


@click.command()
@click.argument("topic")
@connection_options
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start at the oldest record; with --group, only if the group has no committed offsets.",
)
@click.option("--offset", type=click.IntRange(0), help="Start at this offset; requires one --partition.")
@click.option(
    "--from-time", "timestamp_ms", callback=parse_time, help="Start at this time: ISO 8601, or milliseconds since 1970."
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    help="Read only this partition; repeatable.",
)
@click.option("-g", "--group", help="Read as a member of this group and commit offsets.")
@click.option("-n", "--max-records", type=click.IntRange(1), help="Stop after this many records.")
@click.option(
    "-e",
    "--until-end",
    is_flag=True,
    help="Stop at the end that the topic has now, instead of waiting for new records.",
)
@click.option("--format", "template", default="{value}", show_default=True, help="Format of each line; see above.")
@property_option
@output_option
def consume(*, bootstrap: str, template: str, properties: Mapping[str, str], as_json: bool, **options: object) -> None:
    """Print the records of TOPIC, one per line, until Ctrl-C. By default only new records are printed.

    --format can contain {topic}, {partition}, {offset}, {timestamp}, {key}, {value} and {headers}; \\t is a tab.

    \b
    Example:
      odradek consume departures --from-beginning --max-records 5 --format '{key} {timestamp} {value}'
      odradek consume departures --from-time 2013-06-01 --until-end --output json
      odradek consume departures --group billing
    """
    from odradek.cli import record_templates

    wanted = ConsumeOptions(**options)  # type: ignore[arg-type]
    wanted.check()
    try:
        render = record_templates.as_json if as_json else record_templates.template(template)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from error
    with reporting_errors():
        settings = _settings(bootstrap, properties, wanted)
    try:
        run(_consume(settings, wanted, render))
    except KeyboardInterrupt:
        return


def _settings(bootstrap: str, properties: Mapping[str, str], options: ConsumeOptions) -> ClientSettings:
    if options.from_beginning:
        properties = {"auto.offset.reset": "earliest", **properties}
    return client_settings(bootstrap, properties)


async def _consume(settings: ClientSettings, options: ConsumeOptions, render: Render) -> None:
    from odradek.client.consumer.consumer import Consumer

    there = await _partitions(settings, options.topic)
    consumer = Consumer(settings if options.group is None else settings.replace(group_id=options.group))
    try:
        await consumer.start()
        if options.group is not None:
            consumer.subscribe([options.topic])
            await _read(consumer, options, render, None)
            await consumer.commit()
        else:
            await _read(consumer, options, render, await _begin(consumer, _chosen(there, options), options))
    finally:
        await consumer.close()


async def _partitions(settings: ClientSettings, topic: str) -> set[TopicPartition]:
    """Return the partitions of the topic. Raise an error if the topic does not exist, where a consumer would wait."""
    from odradek.client.admin import Admin

    async with Admin(settings) as admin:
        described = (await admin.describe_topics([topic]))[topic]
    return {TopicPartition(topic, part.partition) for part in described.partitions}


async def _read(
    consumer: Consumer, options: ConsumeOptions, render: Render, ends: dict[TopicPartition, int] | None
) -> None:
    """Print records until the maximum, or until every partition has reached its end, if `ends` is not None."""
    left = options.max_records
    while left != 0 and ends != {}:
        batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=left)
        printed = _print(batches, render)
        if left is not None:
            left -= printed
        if ends is not None:
            ends = await _not_reached(consumer, ends)


async def _begin(
    consumer: Consumer, partitions: list[TopicPartition], options: ConsumeOptions
) -> dict[TopicPartition, int] | None:
    """Seek to the start. Return the end offsets of partitions that have records to read; None to read until Ctrl-C."""
    consumer.assign(partitions)
    if options.offset is not None:
        consumer.seek(partitions[0], options.offset)
    elif options.timestamp_ms is not None:
        await _seek_to_time(consumer, partitions, options.timestamp_ms)
    elif options.from_beginning:
        await consumer.seek_to_beginning(*partitions)
    else:
        await consumer.seek_to_end(*partitions)
    return await _not_reached(consumer, await consumer.end_offsets(partitions)) if options.until_end else None


async def _not_reached(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {partition: end for partition, end in ends.items() if await consumer.position(partition) < end}


def _chosen(there: set[TopicPartition], options: ConsumeOptions) -> list[TopicPartition]:
    """Return the selected partitions of the topic."""
    wanted = {TopicPartition(options.topic, number) for number in options.partitions} or there
    for partition in sorted(wanted - there):
        raise UnknownTopicOrPartitionError(
            f"topic {options.topic} has no partition {partition.partition}: it has {len(there)} partitions"
        )
    return sorted(wanted)


def _print(batches: Mapping[TopicPartition, Sequence[ConsumerRecord]], render: Render) -> int:
    """Print records and flush standard output. Returns the number of records."""
    lines = [render(record) + "\n" for records in batches.values() for record in records]
    if lines:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
    return len(lines)


async def _seek_to_time(consumer: Consumer, partitions: Iterable[TopicPartition], timestamp_ms: int) -> None:
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
    late = [partition for partition, at in found.items() if at is None]
    for partition, at in found.items():
        if at is not None:
            consumer.seek(partition, at.offset)
    if late:
        await consumer.seek_to_end(*late)
