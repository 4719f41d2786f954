"""`odradek consume`: prints records as lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.base.errors import UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.cli.completion.completers import complete_groups, complete_topics
from odradek.cli.records.consume_options import ConsumeOptions
from odradek.cli.records.time_options import parse_time
from odradek.cli.records.value_decoders import DECODERS, STRING, Decoders
from odradek.cli.shared import (
    client_settings,
    connection_options,
    document,
    output_option,
    property_option,
    reporting_errors,
    run,
)

if TYPE_CHECKING:
    from odradek.cli.records.record_templates import Render
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.models import ConsumerRecord
    from odradek.client.settings import ClientSettings

_POLL_MS: Final = 500
MAX_LAST: Final = 1_000_000
"""Maximum of --last and --last-total, whose places are in memory."""

Offsets = dict[TopicPartition, int]


def start_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose where to start."""
    for option in reversed(
        (
            click.option(
                "--from-beginning",
                is_flag=True,
                help="Start at the oldest record; with --group, only if the group has no committed offsets.",
            ),
            click.option("--offset", type=click.IntRange(0), help="Start at this offset; requires one --partition."),
            click.option(
                "--from-time",
                "timestamp_ms",
                metavar="TIME",
                callback=parse_time,
                help="Start at this time: ISO 8601, milliseconds since 1970, or before now such as -1h or -2d12h.",
            ),
            click.option(
                "-l", "--last", type=click.IntRange(1, MAX_LAST), help="Start at the last N records of each partition."
            ),
            click.option(
                "--last-total",
                type=click.IntRange(1, MAX_LAST),
                help="Start at the last N records of all partitions together, by timestamp.",
            ),
        )
    ):
        command = option(command)
    return command


def end_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose where to stop."""
    for option in reversed(
        (
            click.option("-n", "--max-records", type=click.IntRange(1), help="Stop after this many records."),
            click.option(
                "-e",
                "--until-end",
                is_flag=True,
                help="Stop at the end that each partition has now, instead of waiting for new records.",
            ),
            click.option(
                "--end-offset", type=click.IntRange(0), help="Stop before this offset; requires one --partition."
            ),
            click.option(
                "--until-time",
                "until_ms",
                metavar="TIME",
                callback=parse_time,
                help="Stop before the first record at or after this time, or at the end that the partition has now.",
            ),
        )
    ):
        command = option(command)
    return command


def format_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose how records are printed."""
    for option in reversed(
        (
            click.option(
                "--format", "template", default="{value}", show_default=True, help="Format of each line; see above."
            ),
            *(
                click.option(
                    f"--{part}-decoder",
                    type=click.Choice(DECODERS),
                    default=STRING,
                    show_default=True,
                    help=f"Format of {plural}. Numbers are big-endian, as those of Kafka's serializers.",
                )
                for part, plural in (("key", "keys"), ("value", "values"), ("header", "values of headers"))
            ),
        )
    ):
        command = option(command)
    return command


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…", shell_complete=complete_topics)
@connection_options
@click.option("-r", "--regex", is_flag=True, help="TOPIC is a regular expression that matches whole names.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    help="Read only this partition; repeatable.",
)
@click.option(
    "-g", "--group", shell_complete=complete_groups, help="Read as a member of this group and commit offsets."
)
@start_options
@end_options
@format_options
@property_option
@output_option
def consume(
    *,
    bootstrap: str,
    template: str,
    key_decoder: str,
    value_decoder: str,
    header_decoder: str,
    properties: Mapping[str, str],
    as_json: bool,
    **options: Any,
) -> None:
    """Print the records of topics, one per line, until Ctrl-C. By default only new records are printed.

    --format can contain {topic}, {partition}, {offset}, {timestamp}, {time}, {timestamp_type}, {key}, {value},
    {key_size}, {value_size}, {headers} and {header:NAME}; \\t is a tab. {key:hex} and {value:base64} use another
    decoder than --key-decoder and --value-decoder.

    \b
    Example:
      odradek consume departures --from-beginning --max-records 5 --format '{key} {timestamp} {value}'
      odradek consume departures --from-time 2013-06-01 --until-end --output json
      odradek consume departures --last 10 --until-end
      odradek consume departures arrivals --from-time -1h --until-time -30m --format '{topic} {time} {value}'
      odradek consume departures --partition 0 --offset 100 --end-offset 200
      odradek consume --regex 'sensors-.*' --key-decoder long --value-decoder json --output json
      odradek consume departures --group billing
    """
    from odradek.cli.records import record_templates

    wanted = ConsumeOptions(**options)
    wanted.check()
    decoders = Decoders(key=key_decoder, value=value_decoder, header=header_decoder)
    try:
        render = (
            record_templates.json_lines(decoders, dump=document)
            if as_json
            else record_templates.template(template, decoders)
        )
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from error
    patterns = _patterns(wanted)
    with reporting_errors():
        settings = _settings(bootstrap, properties, wanted)
    try:
        run(_consume(settings, wanted, patterns, render))
    except KeyboardInterrupt:
        return


def _patterns(options: ConsumeOptions) -> list[re.Pattern[str]]:
    """Compile the patterns. Raises `click.BadParameter`."""
    try:
        return [re.compile(topic) for topic in options.topics] if options.regex else []
    except re.error as error:
        raise click.BadParameter(
            f"{error.pattern!r} is not a regular expression: {error}", param_hint="TOPIC"
        ) from error


def _settings(bootstrap: str, properties: Mapping[str, str], options: ConsumeOptions) -> ClientSettings:
    if options.from_beginning:
        properties = {"auto.offset.reset": "earliest", **properties}
    return client_settings(bootstrap, properties)


async def _consume(
    settings: ClientSettings, options: ConsumeOptions, patterns: Sequence[re.Pattern[str]], render: Render
) -> None:
    from odradek.client.consumer.consumer import Consumer

    there = await _partitions(settings, options, patterns)
    consumer = Consumer(settings if options.group is None else settings.replace(group_id=options.group))
    try:
        await consumer.start()
        if options.group is None:
            await _read(consumer, options, render, await _begin(consumer, _chosen(there, options), options))
            return
        if patterns:
            consumer.subscribe(pattern="|".join(f"(?:{pattern.pattern})" for pattern in patterns))
        else:
            consumer.subscribe(options.topics)
        await _read(consumer, options, render, None)
        await consumer.commit()
    finally:
        await consumer.close()


async def _partitions(
    settings: ClientSettings, options: ConsumeOptions, patterns: Sequence[re.Pattern[str]]
) -> set[TopicPartition]:
    """Return the partitions of the topics. Raise an error if there are none, where a consumer would wait.

    A group with a pattern also waits for topics that do not exist yet.
    """
    from odradek.client.admin import Admin

    async with Admin(settings) as admin:
        names: Iterable[str] = options.topics
        if patterns:
            every = await admin.list_topics()
            names = [name for name in every if any(pattern.fullmatch(name) for pattern in patterns)]
            if not names and options.group is None:
                raise UnknownTopicOrPartitionError(f"no topic matches {' or '.join(options.topics)}")
        described = (await admin.describe_topics(names)) if names else {}
    return {TopicPartition(name, part.partition) for name, topic in described.items() for part in topic.partitions}


async def _read(consumer: Consumer, options: ConsumeOptions, render: Render, ends: Offsets | None) -> None:
    """Print records until the maximum, or until every partition has reached its end, if `ends` is not None."""
    left = options.max_records
    while left != 0 and ends != {}:
        batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=left)
        printed = _print(batches, render, ends)
        if left is not None:
            left -= printed
        if ends is not None:
            ends = await _not_reached(consumer, ends)


async def _begin(consumer: Consumer, partitions: list[TopicPartition], options: ConsumeOptions) -> Offsets | None:
    """Seek to the start. Return the end offsets of partitions that have records to read; None to read until Ctrl-C."""
    ends = await _ends(consumer, partitions, options)
    starts = await _starts(consumer, partitions, options, ends)
    consumer.assign(partitions)
    for partition, offset in starts.items():
        consumer.seek(partition, offset)
    return None if ends is None else await _not_reached(consumer, ends)


async def _ends(consumer: Consumer, partitions: list[TopicPartition], options: ConsumeOptions) -> Offsets | None:
    """Return the offset before which each partition stops: the first of all ends; None if there is none."""
    if not options.has_end:
        return None
    found: list[Offsets] = []
    if options.end_offset is not None:
        found.append(dict.fromkeys(partitions, options.end_offset))
    if options.until_end or options.until_ms is not None:
        found.append(await consumer.end_offsets(partitions))
    if options.until_ms is not None:
        times = await consumer.offsets_for_times(dict.fromkeys(partitions, options.until_ms))
        found.append({partition: place.offset for partition, place in times.items() if place is not None})
    return {partition: min(ends[partition] for ends in found if partition in ends) for partition in partitions}


async def _starts(
    consumer: Consumer, partitions: list[TopicPartition], options: ConsumeOptions, ends: Offsets | None
) -> Offsets:
    """Return the offset at which each partition starts."""
    if options.offset is not None:
        return dict.fromkeys(partitions, options.offset)
    if options.from_beginning:
        return await consumer.beginning_offsets(partitions)
    now = await consumer.end_offsets(partitions)
    if options.timestamp_ms is not None:
        times = await consumer.offsets_for_times(dict.fromkeys(partitions, options.timestamp_ms))
        return {partition: now[partition] if place is None else place.offset for partition, place in times.items()}
    count = options.last or options.last_total
    if count is None:
        return now
    from odradek.cli.records.last_records import last_places, starts_in_all, starts_of_each

    before = now if ends is None else {partition: min(now[partition], ends[partition]) for partition in partitions}
    places = await last_places(consumer, before, count)
    return starts_of_each(places, before) if options.last is not None else starts_in_all(places, before, count)


async def _not_reached(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> Offsets:
    """Return the ends that are not reached. Partitions that have reached theirs are paused."""
    left = {partition: end for partition, end in ends.items() if await consumer.position(partition) < end}
    consumer.pause(*(ends.keys() - left.keys()))
    return left


def _chosen(there: set[TopicPartition], options: ConsumeOptions) -> list[TopicPartition]:
    """Return the selected partitions of the topics."""
    topics = {partition.topic for partition in there}
    wanted = {TopicPartition(topic, number) for topic in topics for number in options.partitions} or there
    for partition in sorted(wanted - there):
        count = sum(other.topic == partition.topic for other in there)
        raise UnknownTopicOrPartitionError(
            f"topic {partition.topic} has no partition {partition.partition}: it has {count} partitions"
        )
    return sorted(wanted)


def _print(batches: Mapping[TopicPartition, Sequence[ConsumerRecord]], render: Render, ends: Offsets | None) -> int:
    """Print records before the ends, and flush standard output. Returns the number of records."""
    lines = [
        render(record) + "\n"
        for partition, records in batches.items()
        for record in records
        if ends is None or record.offset < ends.get(partition, 0)
    ]
    if lines:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
    return len(lines)
