"""`odradek group`: list and describe consumer groups."""

from __future__ import annotations

import click

from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, run
from odradek.cli.tables import show


@click.group()
def group() -> None:
    """List consumer groups, their members and their lag.

    \b
    Example:
      odradek group list
      odradek group describe billing
    """


@group.command("list")
@connection_options
@output_option
def list_groups(bootstrap: str, as_json: bool) -> None:
    """List the consumer groups of all coordinators.

    \b
    Example:
      odradek group list --output json
    """
    from odradek.cli import render
    from odradek.client.admin import Admin
    from odradek.client.models import GroupListing

    async def work() -> list[GroupListing]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.list_groups()

    groups = run(work())
    if as_json:
        echo_json([{"group": g.group_id, "state": g.state, "protocol_type": g.protocol_type} for g in groups])
    else:
        show([render.group_list(groups)])


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP…")
@connection_options
@output_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show the committed offsets, the lag and the members of consumer groups.

    \b
    Example:
      odradek group describe billing
    """
    from odradek.base.errors import GroupIdNotFoundError
    from odradek.cli import render
    from odradek.client.admin import Admin
    from odradek.client.models import GroupDescription

    async def work() -> list[tuple[GroupDescription, list[render.Lag]]]:
        found = []
        async with Admin(client_settings(bootstrap, {})) as admin:
            for name in dict.fromkeys(names):
                described = (await admin.describe_groups([name]))[name]
                committed = await admin.group_offsets(name)
                if described.state == "Dead" and not committed:
                    raise GroupIdNotFoundError(f"group {name} does not exist")
                assigned = [partition for member in described.members for partition in member.assignment]
                wanted = dict.fromkeys([*committed, *assigned], "latest")
                ends = await admin.list_offsets(wanted) if wanted else {}
                lags = render.lags(described, committed, {tp: listed.offset for tp, listed in ends.items()})
                found.append((described, lags))
        return found

    groups = run(work())
    if as_json:
        echo_json([render.group_value(described, lags) for described, lags in groups])
    else:
        show([render.group_detail(described, lags) for described, lags in groups])
