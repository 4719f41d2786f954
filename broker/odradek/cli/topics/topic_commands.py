"""`odradek topic`: list, create, describe, change and delete topics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from odradek.cli.completion.completers import complete_topics
from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, pairs, run
from odradek.cli.tables import show

if TYPE_CHECKING:
    from odradek.base.types import TopicPartition
    from odradek.cli.topics.topic_render import PartitionExtent
    from odradek.client.admin import Admin
    from odradek.client.models import LogDirDescription, TopicDescription

_Described = tuple["TopicDescription", "dict[str, str]", "dict[TopicPartition, PartitionExtent] | None"]
"""A topic, its overrides, and the offsets and sizes of partitions unless only the metadata are wanted."""


@click.group()
def topic() -> None:
    """List, create, describe and delete topics.

    \b
    Example:
      odradek topic create orders --partitions 6 --replication-factor 3 --config retention.ms=86400000
      odradek topic describe orders
    """


@topic.command("list")
@connection_options
@click.option("--internal", is_flag=True, help="Include internal topics.")
@output_option
def list_topics(bootstrap: str, internal: bool, as_json: bool) -> None:
    """List topics with their numbers of partitions and replicas, and whether all replicas are in sync.

    \b
    Example:
      odradek topic list --output json
    """
    from odradek.cli.topics import topic_render
    from odradek.client.admin import Admin

    async def work() -> list[TopicDescription]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            names = await admin.list_topics(internal=internal)
            return list((await admin.describe_topics(names)).values()) if names else []

    topics = sorted(run(work()), key=lambda found: found.name)
    if as_json:
        echo_json([topic_render.topic_value(found) for found in topics])
    else:
        show([topic_render.topic_list(topics)])


@topic.command()
@click.argument("name")
@connection_options
@click.option(
    "-p", "--partitions", type=click.IntRange(1), help="Number of partitions; default: the brokers' num.partitions."
)
@click.option(
    "-r",
    "--replication-factor",
    "replicas",
    type=click.IntRange(1),
    help="Number of replicas; default: the brokers' default.replication.factor.",
)
@click.option(
    "-c",
    "--config",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda _context, _parameter, values: pairs(values),
    help="Topic property, such as retention.ms=86400000; repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic already exists.")
@output_option
def create(
    name: str,
    *,
    bootstrap: str,
    partitions: int | None,
    replicas: int | None,
    config: dict[str, str],
    if_not_exists: bool,
    as_json: bool,
) -> None:
    """Create the topic NAME.

    \b
    Example:
      odradek topic create orders -p 6 -r 3 -c cleanup.policy=compact
    """
    from odradek.base.errors import TopicAlreadyExistsError
    from odradek.client.admin import Admin
    from odradek.client.models import NewTopic

    wanted = NewTopic(
        name=name,
        partitions=-1 if partitions is None else partitions,
        replication_factor=-1 if replicas is None else replicas,
        configs=tuple(config.items()),
    )

    async def work() -> bool:
        async with Admin(client_settings(bootstrap, {})) as admin:
            try:
                await admin.create_topics([wanted])
            except TopicAlreadyExistsError:
                if if_not_exists:
                    return False
                raise
            return True

    created = run(work())
    if as_json:
        echo_json({"topic": name, "created": created})
    else:
        click.echo(f"Topic {name} was created." if created else f"Topic {name} already exists.")


@topic.command()
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=complete_topics)
@connection_options
@click.option("--under-replicated", is_flag=True, help="Show only partitions with replicas that are not in sync.")
@click.option("--metadata-only", is_flag=True, help="Do not ask the brokers of the replicas for offsets and sizes.")
@output_option
def describe(
    *, names: tuple[str, ...], bootstrap: str, under_replicated: bool, metadata_only: bool, as_json: bool
) -> None:
    """Show partitions, leaders, replicas, offsets, sizes and properties of topics, or of all topics.

    START is the first offset of a partition, END the offset after its last replicated record, and SIZE the size of the
    leader's log. They are omitted with --metadata-only and --under-replicated, which work even while leaders do not
    answer.

    \b
    Example:
      odradek topic describe departures
      odradek topic describe --under-replicated
      odradek topic describe orders --output yaml
    """
    from odradek.cli.topics import topic_render
    from odradek.client.admin import Admin

    async def work() -> list[_Described]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            wanted = list(dict.fromkeys(names)) or await admin.list_topics(internal=True)
            found = await _described(admin, sorted(wanted))
            if under_replicated:
                found = [(topic_render.only_troubled(described), config) for described, config in found]
                found = [(described, config) for described, config in found if described.partitions]
            measured = (
                None
                if metadata_only or under_replicated
                else await _measured(admin, [described for described, _ in found])
            )
            return [(described, config, measured) for described, config in found]

    found = run(work())
    if as_json:
        echo_json([topic_render.topic_value(*each) for each in found])
    elif found:
        show([topic_render.topic_detail(*each) for each in found])
    else:
        click.echo("All replicas are in sync." if under_replicated else "There are no topics.")


async def _described(admin: Admin, names: Sequence[str]) -> list[tuple[TopicDescription, dict[str, str]]]:
    """Return topics with their overrides."""
    from odradek.cli.topics import topic_render
    from odradek.client.models import ConfigResource

    if not names:
        return []
    topics = await admin.describe_topics(names)
    resources = {name: ConfigResource.topic(name) for name in names}
    configs = await admin.describe_configs(resources.values())
    return [(topics[name], topic_render.overrides(configs[resource].values())) for name, resource in resources.items()]


async def _measured(admin: Admin, topics: Sequence[TopicDescription]) -> dict[TopicPartition, PartitionExtent]:
    """Return the offsets and sizes of partitions. If the user may not see sizes, a warning says so."""
    from odradek.base.errors import ClusterAuthorizationFailedError
    from odradek.base.types import NO_BROKER, TopicPartition
    from odradek.cli.topics import topic_render

    parts = {TopicPartition(topic.name, part.partition): part for topic in topics for part in topic.partitions}
    led = [name for name, part in parts.items() if part.leader != NO_BROKER]
    starts, ends, described = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(led, "earliest")),
        admin.list_offsets(dict.fromkeys(led, "latest")),
        admin.describe_cluster(),
    )
    holders = {broker for part in parts.values() for broker in part.replicas}
    live = holders & {broker.node_id for broker in described.brokers}
    directories: dict[int, list[LogDirDescription]] = {}
    try:
        directories = await admin.describe_log_dirs(live, partitions=parts)
    except ClusterAuthorizationFailedError as error:
        click.echo(f"Warning: sizes are unknown: {error}.", err=True)
    return topic_render.extents(
        topics,
        {name: found.offset for name, found in starts.items()},
        {name: found.offset for name, found in ends.items()},
        directories,
    )


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_topics)
@connection_options
@click.option("--if-exists", is_flag=True, help="Succeed even if a topic does not exist.")
@output_option
def delete(names: tuple[str, ...], bootstrap: str, if_exists: bool, as_json: bool) -> None:
    """Delete topics and all their records.

    \b
    Example:
      odradek topic delete scratch
    """
    from odradek.base.errors import UnknownTopicOrPartitionError
    from odradek.client.admin import Admin

    async def work() -> list[str]:
        gone = []
        async with Admin(client_settings(bootstrap, {})) as admin:
            for name in dict.fromkeys(names):
                try:
                    await admin.describe_topics([name])
                    await admin.delete_topics([name])
                    gone.append(name)
                except UnknownTopicOrPartitionError:
                    if not if_exists:
                        raise
        return gone

    gone = run(work())
    if as_json:
        echo_json({"deleted": gone})
    else:
        click.echo(f"Deleted: {', '.join(gone)}." if gone else "Nothing was deleted: none of the topics exists.")


@topic.command("add-partitions")
@click.argument("name", shell_complete=complete_topics)
@click.option("-n", "--number", type=click.IntRange(1), required=True, help="How many partitions to add.")
@connection_options
@click.option("--dry-run", is_flag=True, help="Only check whether it is possible.")
@output_option
def add_partitions(name: str, *, number: int, bootstrap: str, dry_run: bool, as_json: bool) -> None:
    """Add partitions to the topic NAME. Keys that are hashed go to other partitions then.

    \b
    Example:
      odradek topic add-partitions orders -n 3
    """
    from odradek.client.admin import Admin

    async def work() -> int:
        async with Admin(client_settings(bootstrap, {})) as admin:
            total = len((await admin.describe_topics([name]))[name].partitions) + number
            await admin.create_partitions({name: total}, validate_only=dry_run)
            return total

    total = run(work())
    if as_json:
        echo_json({"topic": name, "partitions": total, "changed": not dry_run})
    else:
        click.echo(f"Topic {name} {'would have' if dry_run else 'has'} {total} partitions.")


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "-c",
    "--config",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda _context, _parameter, values: pairs(values),
    help="Topic property to set; repeatable.",
)
@click.option("--remove", "removed", multiple=True, metavar="KEY", help="Topic property to reset; repeatable.")
@connection_options
@click.option("--dry-run", is_flag=True, help="Only check whether it is possible.")
@output_option
def alter(
    name: str, *, config: dict[str, str], removed: tuple[str, ...], bootstrap: str, dry_run: bool, as_json: bool
) -> None:
    """Change properties of the topic NAME. The others stay as they are.

    \b
    Example:
      odradek topic alter orders -c retention.ms=86400000 --remove max.message.bytes
    """
    from odradek.client.admin import Admin
    from odradek.client.admin_kinds import ConfigOperation
    from odradek.client.models import ConfigChange, ConfigResource

    if not config and not removed:
        raise click.UsageError("Nothing to change: use --config or --remove.")
    changes = [ConfigChange(name=key, value=value) for key, value in config.items()]
    changes += [ConfigChange(name=key, value=None, operation=ConfigOperation.DELETE) for key in removed]

    async def work() -> None:
        async with Admin(client_settings(bootstrap, {})) as admin:
            await admin.incremental_alter_configs({ConfigResource.topic(name): changes}, validate_only=dry_run)

    run(work())
    if as_json:
        echo_json({"topic": name, "set": config, "removed": list(removed), "changed": not dry_run})
    else:
        click.echo(f"Topic {name} {'can be' if dry_run else 'was'} changed.")


@topic.command("delete-records")
@click.argument("name", shell_complete=complete_topics)
@click.option("--before-offset", type=click.IntRange(0), help="Delete the records before this offset.")
@click.option("--all", "everything", is_flag=True, help="Delete all records that exist now.")
@click.option("-p", "--partition", "partitions", multiple=True, type=click.IntRange(0), help="Only these; repeatable.")
@connection_options
@output_option
def delete_records(
    name: str,
    *,
    before_offset: int | None,
    everything: bool,
    partitions: tuple[int, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Delete the oldest records of the topic NAME, in all partitions or in some.

    \b
    Example:
      odradek topic delete-records orders --partition 0 --before-offset 5000
    """
    from odradek.base.types import TopicPartition
    from odradek.client.admin import Admin

    if everything == (before_offset is not None):
        raise click.UsageError("Use either --before-offset or --all.")
    offset = -1 if before_offset is None else before_offset

    async def work() -> dict[TopicPartition, int]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            known = [part.partition for part in (await admin.describe_topics([name]))[name].partitions]
            return await admin.delete_records({TopicPartition(name, each): offset for each in partitions or known})

    found = sorted(run(work()).items())
    if as_json:
        echo_json([{"topic": name, "partition": each.partition, "firstOffset": first} for each, first in found])
    else:
        for each, first in found:
            click.echo(f"Partition {each.partition} begins at offset {first}.")
