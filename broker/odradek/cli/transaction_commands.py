"""`odradek transaction`: list and describe transactions, find and abort those that hang, and end prepared ones.

See KIP-664 and KIP-939.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, run
from odradek.cli.tables import show

if TYPE_CHECKING:
    from odradek.client.models import ListedTransaction

_PREPARED: Final = "Prepared"
"""Not a state of coordinators, for which a prepared transaction is Ongoing."""
_STATES: Final = (
    "Empty",
    "Ongoing",
    _PREPARED,
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
    """List and describe transactions, and end those that hang or are prepared.

    A transaction hangs if it is open in a partition although its coordinator will not end it. Consumers with
    read_committed then get no records after its start.

    A transaction is prepared if its producer has left the decision to somebody else. It stays open without a timeout
    until it is committed or aborted.

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

    async def work() -> list[ListedTransaction]:
        asked = {"Ongoing" if state == _PREPARED else state for state in states}
        async with Admin(client_settings(bootstrap, {})) as admin:
            listed = await admin.list_transactions(
                states=sorted(asked), producer_ids=producer_ids, min_duration_ms=min_duration_ms
            )
            prepared = {each.prepared for each in await admin.list_prepared()} if _has_open(listed) else set()
        return render.with_prepared(listed, prepared, states)

    found = run(work())
    if as_json:
        echo_json([render.listed_transaction_value(row) for row in found])
    else:
        show([render.transaction_list(found)])


def _has_open(listed: Iterable[ListedTransaction]) -> bool:
    return any(row.state == "Ongoing" for row in listed)


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
@click.argument("name", metavar="TRANSACTIONAL_ID")
@click.option("--producer-id", required=True, type=click.IntRange(0), help="Producer id, as `describe` shows it.")
@click.option("--producer-epoch", required=True, type=click.IntRange(0), help="Epoch, as `describe` shows it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@output_option
def commit(*, name: str, producer_id: int, producer_epoch: int, yes: bool, bootstrap: str, as_json: bool) -> None:
    """Commit a prepared transaction in place of the application that has prepared it.

    The decision is final. Only use it if that application does not come back, and if it had decided to commit. It needs
    the right Write on the transactional id.

    \b
    Example:
      odradek transaction list --state Prepared
      odradek transaction commit billing-1 --producer-id 4000 --producer-epoch 3
    """
    _end_prepared((name, producer_id, producer_epoch), "commit", yes=yes, bootstrap=bootstrap, as_json=as_json)


@transaction.command()
@click.argument("name", required=False, metavar="[TRANSACTIONAL_ID]")
@click.option("--producer-id", type=click.IntRange(0), help="Producer id of a prepared transaction.")
@click.option("--producer-epoch", type=click.IntRange(0), help="Epoch of a prepared transaction.")
@click.option("--topic", metavar="NAME", help="Topic with a hanging transaction.")
@click.option("--partition", type=click.IntRange(0), help="Partition with a hanging transaction.")
@click.option("--start-offset", type=click.IntRange(0), help="First offset, as `find-hanging` shows it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@output_option
def abort(
    *,
    name: str | None,
    producer_id: int | None,
    producer_epoch: int | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Abort a transaction that hangs in a partition, or a prepared one.

    Consumers with read_committed never get its records. In a partition, only use it for a transaction that
    `find-hanging` shows: of another one, this partition would be aborted and the others might be committed. It needs
    the right ClusterAction. For a prepared transaction it needs the right Write on the transactional id, and acts in
    place of the application that has prepared it: only use it if that does not come back.

    \b
    Example:
      odradek transaction abort --topic orders --partition 3 --start-offset 1042
      odradek transaction abort billing-1 --producer-id 4000 --producer-epoch 3
    """
    of_prepared = _all_or_none(
        {"TRANSACTIONAL_ID": name, "--producer-id": producer_id, "--producer-epoch": producer_epoch}
    )
    of_hanging = _all_or_none({"--topic": topic, "--partition": partition, "--start-offset": start_offset})
    if of_prepared == of_hanging:
        raise click.UsageError(
            "Give TRANSACTIONAL_ID, --producer-id and --producer-epoch of a prepared transaction, or --topic, "
            "--partition and --start-offset of a hanging one."
        )
    if name is not None and producer_id is not None and producer_epoch is not None:
        _end_prepared((name, producer_id, producer_epoch), "abort", yes=yes, bootstrap=bootstrap, as_json=as_json)
    elif topic is not None and partition is not None and start_offset is not None:
        _abort_hanging((topic, partition, start_offset), yes=yes, bootstrap=bootstrap, as_json=as_json)


def _all_or_none(options: dict[str, object]) -> bool:
    """Whether all options are given. Raises `UsageError` if only a part of them is."""
    missing = [name for name, value in options.items() if value is None]
    if missing and len(missing) < len(options):
        raise click.UsageError(f"Missing option '{missing[0]}'.")
    return not missing


def _end_prepared(wanted: tuple[str, int, int], verb: str, *, yes: bool, bootstrap: str, as_json: bool) -> None:
    from odradek.client.admin import Admin
    from odradek.client.models import PreparedTransaction

    name, producer_id, producer_epoch = wanted
    prepared = PreparedTransaction(transactional_id=name, producer_id=producer_id, epoch=producer_epoch)
    if not yes:
        click.confirm(f"{verb.capitalize()} {prepared}?", abort=True, err=True)

    async def work() -> None:
        async with Admin(client_settings(bootstrap, {})) as admin:
            await (admin.commit_prepared(prepared) if verb == "commit" else admin.abort_prepared(prepared))

    run(work())
    done = "committed" if verb == "commit" else "aborted"
    if as_json:
        echo_json(
            {"transactional_id": name, "producer_id": producer_id, "producer_epoch": producer_epoch, done: True},
        )
    else:
        text = str(prepared)
        click.echo(f"{text[0].upper()}{text[1:]} was {done}.")


def _abort_hanging(wanted: tuple[str, int, int], *, yes: bool, bootstrap: str, as_json: bool) -> None:
    from odradek.base.errors import ConfigError
    from odradek.base.types import TopicPartition
    from odradek.client.admin import Admin
    from odradek.client.models import ProducerDescription

    topic, partition, start_offset = wanted
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
