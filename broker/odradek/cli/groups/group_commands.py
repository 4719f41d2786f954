"""`odradek group`: list, describe and delete consumer groups, and delete their offsets. `reset_command` resets them."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.completion.completers import complete_groups
from odradek.cli.groups.reset_command import reset
from odradek.cli.shared import client_settings, connection_options, echo_json, message_with_hint, output_option, run
from odradek.cli.tables import show

if TYPE_CHECKING:
    from odradek.base.errors import ProtocolError
    from odradek.base.types import TopicPartition
    from odradek.cli.groups.group_render import ShownGroup, Views
    from odradek.client.admin import Admin

_STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Empty",
    "Dead",
    "Assigning",
    "Reconciling",
)
_TYPES: Final = ("classic", "consumer")
_GROUPS_AT_ONCE: Final = 20
"""Number of groups that `describe` reads concurrently."""


@click.group()
def group() -> None:
    """List consumer groups, show their lag, reset their offsets.

    \b
    Example:
      odradek group list --state Stable
      odradek group describe billing
      odradek group reset billing --topic orders --to-earliest
    """


group.add_command(reset)


@group.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only groups in this state; repeatable.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(_TYPES, case_sensitive=False),
    help="Only groups of this type; repeatable. Needs brokers of version 3.8.",
)
@connection_options
@output_option
def list_groups(states: tuple[str, ...], types: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List the groups of all coordinators, with state, type and protocol.

    \b
    Example:
      odradek group list --state Empty --state Dead
      odradek group list --output json
    """
    from odradek.cli.groups import group_render
    from odradek.client.admin import Admin
    from odradek.client.models import GroupListing

    async def work() -> list[GroupListing]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.list_groups(states=states, types=types)

    groups = run(work())
    if as_json:
        echo_json([group_render.listed_value(found) for found in groups])
    else:
        show([group_render.group_list(groups)])


@group.command()
@click.argument("names", nargs=-1, metavar="[GROUP]…", shell_complete=complete_groups)
@click.option("--all", "every", is_flag=True, help="Describe all groups.")
@click.option("--offsets", is_flag=True, help="Show committed offsets and lag.")
@click.option("--members", is_flag=True, help="Show the members and their partitions.")
@click.option("--state", is_flag=True, help="Show only a row for each group, with its state.")
@click.option("--no-time", is_flag=True, help="Do not fetch records to find how old the first unread one is.")
@connection_options
@output_option
def describe(
    *,
    names: tuple[str, ...],
    every: bool,
    offsets: bool,
    members: bool,
    state: bool,
    no_time: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show state, members, committed offsets and lag of groups. Without one of --offsets, --members and --state, all.

    LAG is the number of records from the committed offset to the high watermark, also for consumers with
    read_committed. BEHIND is the age of the first record that the group has not read, by its timestamp; a dash means
    that it is unknown. For it, one batch of each partition with lag is fetched, which needs the right Read on the
    topic.

    \b
    Example:
      odradek group describe billing
      odradek group describe --all --state
      odradek group describe billing shipping --offsets --output json
    """
    from odradek.cli.groups import group_render
    from odradek.client.admin import Admin

    if every == bool(names):
        raise click.UsageError("Name groups, or use --all.")
    views = group_render.Views(offsets, members, state) if offsets or members or state else group_render.Views()

    async def work() -> list[ShownGroup]:
        found: list[ShownGroup] = []
        async with Admin(client_settings(bootstrap, {})) as admin:
            listed = [each.group_id for each in await admin.list_groups()] if every else list(dict.fromkeys(names))
            for start in range(0, len(listed), _GROUPS_AT_ONCE):
                portion = listed[start : start + _GROUPS_AT_ONCE]
                found += await asyncio.gather(*(_describe(admin, name, views, not no_time) for name in portion))
        # A listed group may have been deleted meanwhile.
        return [described for described in found if not every or described.group.state != "Dead"]

    groups = run(work())
    if as_json:
        echo_json([group_render.group_value(described, views) for described in groups])
    else:
        show(group_render.tables(groups, views))


async def _describe(admin: Admin, name: str, views: Views, with_time: bool) -> ShownGroup:
    """Read a group. Raises `GroupIdNotFoundError`."""
    from odradek.base.errors import GroupIdNotFoundError
    from odradek.cli.groups import group_render

    described = (await admin.describe_groups([name]))[name]
    committed = await admin.group_offsets(name) if views.offsets or described.state == "Dead" else {}
    if described.state == "Dead" and not committed:
        raise GroupIdNotFoundError(f"group {name} does not exist")
    if not views.offsets:
        return group_render.ShownGroup(described, None)
    assigned = [partition for member in described.members for partition in member.assignment]
    lags = await admin.group_lag(name, {*committed, *assigned}, with_time=with_time)
    return group_render.ShownGroup(described, group_render.positions(described, lags))


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP…", shell_complete=complete_groups)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@output_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete groups without members, with their committed offsets.

    All groups that can be deleted are deleted, even if another cannot; then the exit code is 1.

    \b
    Example:
      odradek group delete billing-test
    """
    from odradek.base.errors import ProtocolError
    from odradek.client.admin import Admin

    wanted = list(dict.fromkeys(names))
    if not yes:
        what = "the groups" if len(wanted) > 1 else "the group"
        click.confirm(f"Delete {what} {', '.join(wanted)} and all committed offsets?", abort=True, err=True)

    async def work() -> dict[str, ProtocolError | None]:
        outcomes: dict[str, ProtocolError | None] = {}
        async with Admin(client_settings(bootstrap, {})) as admin:
            for name in wanted:
                try:
                    await admin.delete_groups([name])
                    outcomes[name] = None
                except ProtocolError as error:
                    outcomes[name] = error
        return outcomes

    outcomes = run(work())
    if as_json:
        echo_json(
            [
                {"group": name, "deleted": error is None, "error": None if error is None else str(error)}
                for name, error in outcomes.items()
            ]
        )
    else:
        for name, error in outcomes.items():
            if error is None:
                click.echo(f"Group {name} was deleted.")
            else:
                click.echo(f"Not deleted: {message_with_hint(error)}", err=True)
    if any(outcomes.values()):
        sys.exit(1)


@group.command("delete-offsets")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    required=True,
    multiple=True,
    metavar="TOPIC[:PARTITION,…]",
    help="Topic, or some of its partitions; repeatable.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@output_option
def delete_offsets(*, name: str, topics: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete committed offsets of a group. No member may be subscribed to the topic.

    Consumers then begin where auto.offset.reset says.

    \b
    Example:
      odradek group delete-offsets billing --topic orders:0,1
    """
    from odradek.base.errors import GroupIdNotFoundError
    from odradek.cli.groups import reset_plans
    from odradek.client.admin import Admin

    scope = reset_plans.parse_scope(topics)
    if not yes:
        click.confirm(f"Delete the offsets of group {name} for {', '.join(topics)}?", abort=True, err=True)

    async def work() -> dict[TopicPartition, ProtocolError | None]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            committed = await admin.group_offsets(name)
            if not committed and (await admin.describe_groups([name]))[name].state == "Dead":
                raise GroupIdNotFoundError(f"group {name} does not exist")
            return await admin.delete_group_offsets(name, reset_plans.in_scope(scope, committed))

    outcomes = run(work())
    if as_json:
        echo_json(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "deleted": error is None,
                    "error": None if error is None else str(error),
                }
                for partition, error in sorted(outcomes.items())
            ]
        )
    elif not outcomes:
        click.echo(f"Nothing was deleted: group {name} has no committed offsets there.")
    else:
        for partition, error in sorted(outcomes.items()):
            if error is None:
                click.echo(f"The offset of group {name} for {partition} was deleted.")
            else:
                click.echo(f"The offset for {partition} was not deleted: {message_with_hint(error)}", err=True)
    if any(outcomes.values()):
        sys.exit(1)
