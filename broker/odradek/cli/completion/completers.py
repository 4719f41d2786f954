"""Completes names of topics and groups in a shell.

A shell waits for the result, so the cluster has little time to answer. If it cannot be reached, there are no names and
no message, because a message would appear in the line that the user types.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterable
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Final

import click

from odradek.base.errors import OdradekError
from odradek.cli.shared import DEFAULT_BOOTSTRAP, client_settings

if TYPE_CHECKING:
    from odradek.client.admin import Admin

LIMIT_SECONDS: Final = 2.0
"""Maximum seconds for the cluster to answer."""


def complete_topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics of the cluster that begin with `incomplete`."""
    return _matching(_from_cluster(context, _topics), incomplete)


def complete_groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups of the cluster that begin with `incomplete`."""
    return _matching(_from_cluster(context, _groups), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


async def _topics(admin: Admin) -> list[str]:
    return await admin.list_topics()


async def _groups(admin: Admin) -> list[str]:
    return [group.group_id for group in await admin.list_groups()]


def _from_cluster(context: click.Context, read: Callable[[Admin], Awaitable[list[str]]]) -> list[str]:
    """Return names from the cluster of the command line so far; none if it does not answer in time."""
    from odradek.client.admin import Admin

    limit = str(int(LIMIT_SECONDS * 1000))
    bootstrap = context.params.get("bootstrap") or DEFAULT_BOOTSTRAP

    async def ask() -> list[str]:
        async with asyncio.timeout(LIMIT_SECONDS):
            async with Admin(client_settings(bootstrap, {"default.api.timeout.ms": limit})) as admin:
                return await read(admin)

    try:
        with context.scope(cleanup=False), redirect_stderr(io.StringIO()):
            return asyncio.run(ask())
    except (OdradekError, OSError, click.ClickException):  # TimeoutError is an OSError.
        return []
