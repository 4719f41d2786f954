"""`odradek config`: settings of topics and brokers that can change while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, pairs, run
from odradek.cli.tables import Column, Table, show

if TYPE_CHECKING:
    from odradek.client.models import ConfigChange, ConfigEntry, ConfigResource

_F = TypeVar("_F", bound=Callable[..., Any])

_SET: Final = 0
_DELETE: Final = 1
_SOURCES: Final = {
    1: "topic",
    2: "broker, changed while it ran",
    3: "all brokers, changed while they ran",
    4: "file of the broker",
    5: "default",
    6: "logger",
}
_SET_SOURCES: Final = (1, 2, 3)
"""Sources of settings that somebody has set for the resource."""
_COLUMNS: Final = (Column("setting"), Column("value"), Column("set by"))


def _resource_options(command: _F) -> _F:
    command = click.option("--brokers", is_flag=True, help="The defaults of all brokers.")(command)
    command = click.option("--broker", type=click.IntRange(0), metavar="ID", help="One broker.")(command)
    return click.option("--topic", metavar="NAME", help="A topic.")(command)


@click.group()
def config() -> None:
    """Show and change settings of topics and brokers, without a restart.

    \b
    Example:
      odradek config list --topic orders
      odradek config set --topic orders retention.ms=86400000
    """


@config.command("list")
@click.argument("keys", nargs=-1, metavar="[SETTING]…")
@_resource_options
@click.option("--all", "is_all", is_flag=True, help="Also the settings that nobody has set.")
@connection_options
@output_option
def list_settings(*, keys: tuple[str, ...], is_all: bool, bootstrap: str, as_json: bool, **where: Any) -> None:
    """List the settings that somebody has set for a topic or a broker; all or some of them by request.

    The values of passwords are never shown.

    \b
    Example:
      odradek config list --topic orders
      odradek config list --broker 1 --all
      odradek config list --topic orders retention.ms cleanup.policy
    """
    from odradek.client.admin import Admin

    resource = _resource(**where)

    async def work() -> Mapping[str, ConfigEntry]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return (await admin.describe_configs([resource], keys=keys or None))[resource]

    found = run(work())
    shown = [entry for _, entry in sorted(found.items()) if is_all or keys or entry.source in _SET_SOURCES]
    if as_json:
        echo_json(
            [
                {"setting": entry.name, "value": entry.value, "source": entry.source, "sensitive": entry.sensitive}
                for entry in shown
            ]
        )
        return
    rows = tuple((entry.name, _value(entry), _SOURCES.get(entry.source, str(entry.source))) for entry in shown)
    show([Table("", _COLUMNS, rows, empty="No settings.")])


@config.command("set")
@click.argument("values", nargs=-1, required=True, metavar="SETTING=VALUE…")
@_resource_options
@connection_options
def set_settings(*, values: tuple[str, ...], bootstrap: str, **where: Any) -> None:
    """Set settings of a topic or a broker. Others stay as they are.

    \b
    Example:
      odradek config set --topic orders retention.ms=86400000
      odradek config set --brokers log.retention.hours=24
    """
    changes = pairs(values)
    _alter(bootstrap, where, {name: (value, _SET) for name, value in changes.items()})
    click.echo(f"Set: {', '.join(changes)}.")


@config.command()
@click.argument("keys", nargs=-1, required=True, metavar="SETTING…")
@_resource_options
@connection_options
def remove(*, keys: tuple[str, ...], bootstrap: str, **where: Any) -> None:
    """Remove settings of a topic or a broker, so that the defaults apply.

    \b
    Example:
      odradek config remove --topic orders retention.ms
    """
    _alter(bootstrap, where, dict.fromkeys(keys, (None, _DELETE)))
    click.echo(f"Removed: {', '.join(dict.fromkeys(keys))}.")


def _resource(*, topic: str | None, broker: int | None, brokers: bool) -> ConfigResource:
    from odradek.client.models import ConfigResource

    if [topic is not None, broker is not None, brokers].count(True) != 1:
        raise click.UsageError("Name one topic or broker: --topic, --broker or --brokers.")
    return ConfigResource.broker(broker) if topic is None else ConfigResource.topic(topic)


def _alter(bootstrap: str, where: Mapping[str, Any], changes: Mapping[str, tuple[str | None, int]]) -> None:
    from odradek.client.admin import Admin
    from odradek.client.models import ConfigChange

    resource = _resource(**where)
    wanted: list[ConfigChange] = [
        ConfigChange(name=name, value=value, operation=operation) for name, (value, operation) in changes.items()
    ]

    async def work() -> None:
        async with Admin(client_settings(bootstrap, {})) as admin:
            await admin.incremental_alter_configs({resource: wanted})

    run(work())


def _value(entry: ConfigEntry) -> str:
    if entry.value is None:
        return "(hidden)" if entry.sensitive else ""
    return entry.value
