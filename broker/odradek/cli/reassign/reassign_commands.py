"""`odradek reassign`: plan, start, list and cancel reassignments. `watch_command` shows their progress."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from odradek.cli.reassign.watch_command import watch
from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, reporting_errors, run
from odradek.cli.tables import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from odradek.base.types import TopicPartition
    from odradek.cli.reassign.cluster_moves import Replicas
    from odradek.cli.reassign.move_progress import MoveProgress
    from odradek.client.admin import Admin

_Planned = tuple[
    "dict[TopicPartition, Replicas]",
    "dict[TopicPartition, Replicas]",
    "dict[TopicPartition, int]",
]
"""Present replicas, new replicas, and sizes of partitions."""
_OUTPUT_FILE: Final = click.File("w", encoding="utf-8", lazy=True)


@click.group()
def reassign() -> None:
    """Move replicas between brokers.

    `plan` writes a file, `start` begins its moves, `watch` shows their progress and removes the throttle at the end.
    The state of a reassignment is in the cluster, so the file is needed only for `start`.

    \b
    Example:
      odradek reassign plan --decommission 2 --file plan.json
      odradek reassign start plan.json --throttle 50000000
      odradek reassign watch
    """


reassign.add_command(watch)


@reassign.command()
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; repeatable.")
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    type=click.IntRange(0),
    metavar="ID",
    help="Broker that may hold the replicas; repeatable. Default: all that are alive.",
)
@click.option(
    "--decommission",
    "leaving",
    multiple=True,
    type=click.IntRange(0),
    metavar="ID",
    help="Broker that must not hold any of the replicas; repeatable. It does not have to be alive.",
)
@click.option(
    "-r", "--replication-factor", "factor", type=click.IntRange(1), help="New number of replicas of each partition."
)
@click.option("--balance", is_flag=True, help="With other options: also spread replicas and leaders evenly.")
@click.option(
    "-f", "--file", "plan_file", type=click.File("w", encoding="utf-8", lazy=True), help="Write the plan here."
)
@click.option(
    "--rollback-file",
    type=click.File("w", encoding="utf-8", lazy=True),
    help="Write a plan with the present replicas of the same partitions here.",
)
@connection_options
@output_option
def plan(
    *,
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    leaving: tuple[int, ...],
    factor: int | None,
    balance: bool,
    plan_file: IO[str] | None,
    rollback_file: IO[str] | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Plan which replicas move, with as few moves as possible and over all racks. Nothing is changed.

    With --broker, --decommission or --replication-factor, only the moves are planned that are necessary for it.
    Otherwise, or with --balance, replicas and preferred leaders are also spread evenly. The file and --output json have
    the format of kafka-reassign-partitions.

    \b
    Example:
      odradek reassign plan --decommission 2 --file plan.json --rollback-file before.json
      odradek reassign plan --topic orders --replication-factor 2 --balance
      odradek reassign plan
    """
    from odradek.cli.reassign.cluster_moves import assignments, leader_sizes, live_brokers
    from odradek.cli.reassign.move_progress import plan_table
    from odradek.cli.reassign.placement import plan_moves
    from odradek.cli.reassign.plan_files import plan_text, plan_value
    from odradek.client.admin import Admin

    evenly = balance or not (brokers or leaving or factor is not None)

    async def work() -> tuple[
        dict[TopicPartition, Replicas], dict[TopicPartition, Replicas], dict[TopicPartition, int]
    ]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            live = await live_brokers(admin)
            _check_alive(brokers, live)
            described = await admin.describe_topics(topics or await admin.list_topics(internal=True))
            current = await assignments(admin, described)
            allowed = {each: rack for each, rack in live.items() if each not in leaving and each in (brokers or live)}
            targets = plan_moves(current, allowed, replication_factor=factor, balance=evenly)
            return current, targets, await leader_sizes(admin, described, targets.keys())

    current, targets, sizes = run(work())
    if plan_file is not None:
        plan_file.write(plan_text(targets))
    if rollback_file is not None:
        rollback_file.write(plan_text({name: current[name] for name in targets}))
    if as_json:
        echo_json(plan_value(targets))
        return
    show([plan_table(current, targets, sizes)])
    if plan_file is not None and targets:
        click.echo(f"Start the moves with `odradek reassign start {plan_file.name}`.")


def _check_alive(brokers: Iterable[int], live: Mapping[int, str | None]) -> None:
    from odradek.base.errors import BrokerNotAvailableError

    missing = sorted(set(brokers) - live.keys())
    if missing:
        ids = ", ".join(map(str, missing))
        raise BrokerNotAvailableError(f"no replica can move to broker {ids}, which is not alive")


@reassign.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--throttle", "rate", type=click.IntRange(1), metavar="BYTES", help="Limit of each broker in bytes per second."
)
@click.option("--additional", is_flag=True, help="Start although other reassignments are in progress.")
@connection_options
@output_option
def start(*, path: Path, rate: int | None, additional: bool, bootstrap: str, as_json: bool) -> None:
    """Start the moves of a plan: a file of `odradek reassign plan` or of kafka-reassign-partitions.

    Replicas of the plan that are where they should be stay there. With --throttle, the copying between brokers is
    limited until `odradek reassign watch` finds that all reassignments have ended.

    \b
    Example:
      odradek reassign start plan.json --throttle 50000000
    """
    from odradek.cli.reassign.cluster_moves import assignments, live_brokers, set_throttle
    from odradek.cli.reassign.plan_files import parse_plan, plan_value
    from odradek.client.admin import Admin

    with reporting_errors():
        targets = parse_plan(path.read_bytes(), source=str(path))

    async def work() -> dict[TopicPartition, Replicas]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            if not additional:
                await _check_idle(admin)
            current = await assignments(admin, await admin.describe_topics({name.topic for name in targets}))
            _check_known(targets, current)
            changed = {name: each for name, each in targets.items() if each != current[name]}
            # As in Kafka, replicas that stay may be on brokers that are not alive.
            added = {broker for name, each in changed.items() for broker in each if broker not in current[name]}
            _check_alive(added, await live_brokers(admin))
            if rate is not None:
                await set_throttle(admin, current, changed, rate=rate)
            await admin.alter_partition_reassignments(changed)
            return changed

    changed = run(work())
    if as_json:
        echo_json(plan_value(changed))
    elif changed:
        noun = "partition" if len(changed) == 1 else "partitions"
        click.echo(f"The reassignment of {len(changed)} {noun} has begun. `odradek reassign watch` shows its progress.")
    else:
        click.echo("All replicas are where the plan wants them.")


async def _check_idle(admin: Admin) -> None:
    from odradek.base.errors import ReassignmentInProgressError

    moving = await admin.list_partition_reassignments()
    if moving:
        raise ReassignmentInProgressError(
            f"{len(moving)} partitions are being reassigned: wait, or use --additional to start more moves"
        )


def _check_known(targets: Iterable[TopicPartition], current: Mapping[TopicPartition, object]) -> None:
    from odradek.base.errors import UnknownTopicOrPartitionError

    unknown = sorted(set(targets) - current.keys())
    if unknown:
        raise UnknownTopicOrPartitionError(f"the plan has partitions that do not exist: {', '.join(map(str, unknown))}")


@reassign.command("list")
@connection_options
@output_option
def list_moves(bootstrap: str, as_json: bool) -> None:
    """List the reassignments in progress and what they have copied.

    \b
    Example:
      odradek reassign list
      odradek reassign list --output json
    """
    from odradek.cli.reassign.cluster_moves import read_moves
    from odradek.cli.reassign.move_progress import move_table, move_value
    from odradek.client.admin import Admin

    async def work() -> list[MoveProgress]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await read_moves(admin)

    moves = run(work())
    if as_json:
        echo_json([move_value(move) for move in moves])
    else:
        show([move_table(moves)])


@reassign.command()
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; repeatable.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--keep-throttle", is_flag=True, help="Do not remove the throttle.")
@connection_options
@output_option
def cancel(*, topics: tuple[str, ...], yes: bool, keep_throttle: bool, bootstrap: str, as_json: bool) -> None:
    """Cancel the reassignments in progress: the partitions get back their old replicas.

    The order of the replicas, and with it the preferred leader, may differ from the old one. If no reassignment is in
    progress any more, the throttle is removed.

    \b
    Example:
      odradek reassign cancel --topic orders
      odradek reassign cancel --yes
    """
    from odradek.cli.reassign.cluster_moves import lift_throttle
    from odradek.client.admin import Admin

    if not yes:
        what = f"of {', '.join(topics)}" if topics else "of all topics"
        click.confirm(f"Cancel the reassignments {what}?", abort=True, err=True)

    async def work() -> list[TopicPartition]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            moving = await admin.list_partition_reassignments()
            cancelled = sorted(name for name in moving if not topics or name.topic in topics)
            await admin.alter_partition_reassignments(dict.fromkeys(cancelled))
            if not keep_throttle and not await admin.list_partition_reassignments():
                await lift_throttle(admin)
            return cancelled

    cancelled = run(work())
    if as_json:
        echo_json([{"topic": name.topic, "partition": name.partition} for name in cancelled])
    elif cancelled:
        click.echo(f"Cancelled: {', '.join(map(str, cancelled))}.")
    else:
        click.echo("No reassignment is in progress.")
