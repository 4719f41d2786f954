"""`odradek elect`: elects the leaders of partitions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.shared import client_settings, connection_options, echo_json, message_with_hint, output_option, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.base.errors import ProtocolError
    from odradek.base.types import TopicPartition
    from odradek.client.admin import Admin

_KINDS: Final = ("preferred", "unclean")


@click.command()
@click.argument("kind", type=click.Choice(_KINDS))
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Partitions of this topic; repeatable.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    help="Only this partition of the one topic; repeatable.",
)
@click.option("--all", "is_all", is_flag=True, help="All partitions of all topics.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation of an unclean election.")
@connection_options
@output_option
def elect(
    *,
    kind: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    is_all: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Elect the leaders of partitions, and show each partition that failed, with the reason. Then the exit code is 1.

    `preferred` makes the first replica the leader if it is in sync. `unclean` makes a live replica the leader of a
    partition without one, although it is not in sync: the records that it does not have are lost.

    \b
    Example:
      odradek elect preferred --all
      odradek elect preferred --topic orders --partition 0
      odradek elect unclean --topic orders --partition 0 --yes
    """
    from odradek.client.admin import Admin
    from odradek.client.administration.partition_admin import ElectionType

    if is_all == bool(topics):
        raise click.UsageError("Name topics with --topic, or use --all.")
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition needs exactly one --topic.")
    if kind == "unclean" and not yes:
        click.confirm("Elect leaders that are not in sync, and lose records?", abort=True, err=True)
    election = ElectionType.PREFERRED if kind == "preferred" else ElectionType.UNCLEAN

    async def work() -> dict[TopicPartition, ProtocolError | None]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            wanted = await _partitions(admin, topics, partitions) if topics else None
            return await admin.elect_leaders(wanted, election=election)

    results = sorted(run(work()).items())
    if as_json:
        echo_json([_value(name, error) for name, error in results])
    else:
        _print(results)
    if any(error is not None and _is_needed(error) for _, error in results):
        sys.exit(1)


async def _partitions(admin: Admin, topics: Sequence[str], partitions: Sequence[int]) -> list[TopicPartition]:
    """Return the partitions of the topics: all, or some of the only topic."""
    from odradek.base.types import TopicPartition

    if partitions:
        return [TopicPartition(topics[0], partition) for partition in dict.fromkeys(partitions)]
    described = await admin.describe_topics(dict.fromkeys(topics))
    return [TopicPartition(topic.name, part.partition) for topic in described.values() for part in topic.partitions]


def _is_needed(error: ProtocolError | None) -> bool:
    """Whether the result of an election is not that the leader was right already."""
    from odradek.base.errors import ElectionNotNeededError

    return not isinstance(error, ElectionNotNeededError)


def _print(results: Sequence[tuple[TopicPartition, ProtocolError | None]]) -> None:
    elected = [name for name, error in results if error is None]
    failed = [error for _, error in results if error is not None and _is_needed(error)]
    if elected:
        click.echo(f"Leaders were elected for {', '.join(map(str, elected))}.")
    elif not failed:
        click.echo("No election was needed.")
    for error in failed:
        click.echo(f"Not elected: {message_with_hint(error)}", err=True)


def _value(name: TopicPartition, error: ProtocolError | None) -> dict[str, object]:
    """Return the result of a partition for JSON."""
    needed = _is_needed(error)
    return {
        "topic": name.topic,
        "partition": name.partition,
        "elected": error is None,
        "needed": needed,
        "error": None if error is None or not needed else str(error),
    }
