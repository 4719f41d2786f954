"""`odradek transaction`: list and describe transactions, and find and abort those that hang (KIP-664)."""

from __future__ import annotations

from typing import Final

import click

from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, run
from odradek.cli.tables import show

_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)
_OPEN_FOR_MS: Final = 900_000
"""The brokers' default of `transaction.max.timeout.ms`."""


@click.group()
def transaction() -> None:
    """List and describe transactions, and find and abort those that hang.

    A transaction hangs if it is open in a partition although its coordinator will not end it. Consumers with
    read_committed then get no records after its start.

    \b
    Example:
      odradek transaction list --state Ongoing
      odradek transaction find-hanging --topic orders
    """


@transaction.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only transactions in this state; repeatable.",
)
@click.option(
    "--producer-id", "producer_ids", multiple=True, type=click.IntRange(0), help="Only of this producer; repeatable."
)
@click.option(
    "--min-duration-ms",
    type=click.IntRange(0),
    help="Only transactions that have been open for longer. Needs brokers of version 3.8.",
)
@connection_options
@output_option
def list_transactions(
    *,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    min_duration_ms: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """List the transactional ids of all coordinators, with the state of their current or last transaction.

    \b
    Example:
      odradek transaction list --state Ongoing --min-duration-ms 60000
    """
    from odradek.cli import render
    from odradek.client.admin import Admin
    from odradek.client.models import ListedTransaction

    async def work() -> list[ListedTransaction]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.list_transactions(
                states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms
            )

    found = run(work())
    if as_json:
        echo_json([render.listed_transaction_value(row) for row in found])
    else:
        show([render.transaction_list(found)])


@transaction.command()
@click.argument("names", nargs=-1, required=True, metavar="TRANSACTIONAL_ID…")
@connection_options
@output_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show the current or last transaction of transactional ids, with its partitions.

    \b
    Example:
      odradek transaction describe billing-1
    """
    from odradek.cli import render
    from odradek.client.admin import Admin
    from odradek.client.models import TransactionDescription

    async def work() -> list[TransactionDescription]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return list((await admin.describe_transactions(dict.fromkeys(names))).values())

    found = run(work())
    if as_json:
        echo_json([render.transaction_value(row) for row in found])
    else:
        show([render.transaction_detail(row) for row in found])


@transaction.command("find-hanging")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only in this topic; repeatable.")
@click.option(
    "--open-for-ms",
    type=click.IntRange(0),
    default=_OPEN_FOR_MS,
    show_default=True,
    help="Only transactions without a new batch for this long. It must be at least the brokers' "
    "transaction.max.timeout.ms.",
)
@connection_options
@output_option
def find_hanging(*, topics: tuple[str, ...], open_for_ms: int, bootstrap: str, as_json: bool) -> None:
    """Find transactions that are open in a partition although no coordinator will end them.

    \b
    Example:
      odradek transaction find-hanging --topic orders
      odradek transaction abort --topic orders --partition 3 --start-offset 1042
    """
    from odradek.base.types import TopicPartition
    from odradek.cli import render
    from odradek.client.admin import Admin
    from odradek.client.models import HangingTransaction

    async def work() -> list[HangingTransaction]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            described = await admin.describe_topics(dict.fromkeys(topics) or await admin.list_topics(internal=True))
            partitions = [
                TopicPartition(name, part.partition) for name, topic in described.items() for part in topic.partitions
            ]
            return await admin.find_hanging_transactions(partitions, open_for_ms=open_for_ms)

    found = run(work())
    if as_json:
        echo_json([render.hanging_value(row) for row in found])
    else:
        show([render.hanging_list(found)])


@transaction.command()
@click.option("--topic", required=True, metavar="NAME", help="Topic with the hanging transaction.")
@click.option("--partition", required=True, type=click.IntRange(0), help="Partition with the hanging transaction.")
@click.option("--start-offset", required=True, type=click.IntRange(0), help="First offset, as `find-hanging` shows it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@output_option
def abort(*, topic: str, partition: int, start_offset: int, yes: bool, bootstrap: str, as_json: bool) -> None:
    """Abort a transaction that hangs in a partition.

    Consumers with read_committed never get its records. Only use it for a transaction that `find-hanging` shows: of
    another one, this partition would be aborted and the others might be committed. It needs the right ClusterAction.

    \b
    Example:
      odradek transaction abort --topic orders --partition 3 --start-offset 1042
    """
    from odradek.base.errors import ConfigError
    from odradek.base.types import TopicPartition
    from odradek.client.admin import Admin
    from odradek.client.models import ProducerDescription

    place = TopicPartition(topic, partition)
    if not yes:
        click.confirm(f"Abort the transaction in {place} that starts at offset {start_offset}?", abort=True, err=True)

    async def work() -> ProducerDescription:
        async with Admin(client_settings(bootstrap, {})) as admin:
            for producer in (await admin.describe_producers([place]))[place]:
                if producer.transaction_start_offset == start_offset:
                    await admin.abort_transaction(
                        place,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        coordinator_epoch=producer.coordinator_epoch,
                    )
                    return producer
        raise ConfigError(f"partition {place} has no open transaction that starts at offset {start_offset}")

    aborted = run(work())
    if as_json:
        echo_json(
            {
                "topic": topic,
                "partition": partition,
                "start_offset": start_offset,
                "producer_id": aborted.producer_id,
                "aborted": True,
            }
        )
    else:
        click.echo(f"The transaction of producer {aborted.producer_id} in {place} was aborted.")
