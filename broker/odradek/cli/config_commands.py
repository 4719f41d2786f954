"""`odradek config`: settings of topics and brokers that can change while they run, and the levels of loggers."""

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
    3: "defaults of all brokers, changed while they ran",
    4: "file of the broker",
    5: "default",
    6: "logger",
}
_SET_SOURCES: Final = (1, 2, 3, 6)
"""Sources of settings that somebody has set for the resource. Of loggers, all are shown."""
_COLUMNS: Final = (Column("setting"), Column("value"), Column("set by"))


def _resource_options(command: _F) -> _F:
    command = click.option("--brokers", is_flag=True, help="The defaults of all brokers.")(command)
    command = click.option(
        "--broker-logger", "logger", type=click.IntRange(0), metavar="ID", help="The levels of one broker's loggers."
    )(command)
    command = click.option("--broker", type=click.IntRange(0), metavar="ID", help="One broker.")(command)
    return click.option("--topic", metavar="NAME", help="A topic.")(command)


@click.group()
def config() -> None:
    """Show and change settings of topics and brokers, and the levels of loggers, without a restart.

    \b
    Example:
      odradek config list --topic orders
      odradek config set --topic orders retention.ms=86400000
    """


@config.command("list")
@click.argument("keys", nargs=-1, metavar="[SETTING]…")
@_resource_options
@click.option("--all", "is_all", is_flag=True, help="Also the settings that nobody has set.")
@click.option("--synonyms", is_flag=True, help="Show all values of each setting in the order of their precedence.")
@connection_options
@output_option
def list_settings(
    *, keys: tuple[str, ...], is_all: bool, synonyms: bool, bootstrap: str, as_json: bool, **where: Any
) -> None:
    """List the settings that somebody has set for a topic or a broker; all or some of them by request.

    The values of passwords are never shown. The first value of a setting with --synonyms applies; the others would
    apply without it.

    \b
    Example:
      odradek config list --topic orders
      odradek config list --broker 1 --all
      odradek config list --topic orders retention.ms cleanup.policy --synonyms
      odradek config list --broker-logger 1 root
    """
    from odradek.client.admin import Admin

    resource = _resource(**where)

    async def work() -> Mapping[str, ConfigEntry]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return (await admin.describe_configs([resource], keys=keys or None, synonyms=synonyms))[resource]

    found = run(work())
    shown = [entry for _, entry in sorted(found.items()) if is_all or keys or entry.source in _SET_SOURCES]
    if as_json:
        echo_json([_plain(entry, with_synonyms=synonyms) for entry in shown])
    else:
        rows = [row for entry in shown for row in _rows(entry, with_synonyms=synonyms)]
        show([Table("", _COLUMNS, tuple(rows), empty="No settings.")])


def _plain(entry: ConfigEntry, *, with_synonyms: bool) -> dict[str, object]:
    """Return a setting for JSON."""
    value: dict[str, object] = {
        "setting": entry.name,
        "value": entry.value,
        "source": entry.source,
        "sensitive": entry.sensitive,
        "readOnly": entry.read_only,
    }
    if with_synonyms:
        value["synonyms"] = [
            {"setting": each.name, "value": each.value, "source": each.source} for each in entry.synonyms
        ]
    return value


def _rows(entry: ConfigEntry, *, with_synonyms: bool) -> list[tuple[str, ...]]:
    """Return the rows of a setting: one, and with synonyms one for each value."""
    rows: list[tuple[str, ...]] = [(entry.name, _value(entry.value, entry), _source(entry.source))]
    if with_synonyms:
        rows += [(f"  {each.name}", _value(each.value, entry), _source(each.source)) for each in entry.synonyms]
    return rows


@config.command("set")
@click.argument("values", nargs=-1, required=True, metavar="SETTING=VALUE…")
@_resource_options
@connection_options
@output_option
def set_settings(*, values: tuple[str, ...], bootstrap: str, as_json: bool, **where: Any) -> None:
    """Set settings of a topic or a broker, or levels of loggers: TRACE, DEBUG, INFO, WARN, ERROR or FATAL.

    Others stay as they are. The level of a logger applies until the broker restarts.

    \b
    Example:
      odradek config set --topic orders retention.ms=86400000
      odradek config set --brokers log.retention.ms=86400000
      odradek config set --broker-logger 1 odradek.replication=DEBUG
    """
    changes = pairs(values)
    _alter(bootstrap, where, {name: (value, _SET) for name, value in changes.items()})
    if as_json:
        echo_json({"set": changes})
    else:
        click.echo(f"Set: {', '.join(changes)}.")


@config.command()
@click.argument("keys", nargs=-1, required=True, metavar="SETTING…")
@_resource_options
@connection_options
@output_option
def remove(*, keys: tuple[str, ...], bootstrap: str, as_json: bool, **where: Any) -> None:
    """Remove settings of a topic or a broker, so that the defaults apply.

    A logger without a level has that of its parent: odradek.replication has that of odradek.

    \b
    Example:
      odradek config remove --topic orders retention.ms
      odradek config remove --broker-logger 1 odradek.replication
    """
    _alter(bootstrap, where, dict.fromkeys(keys, (None, _DELETE)))
    if as_json:
        echo_json({"removed": list(dict.fromkeys(keys))})
    else:
        click.echo(f"Removed: {', '.join(dict.fromkeys(keys))}.")


def _resource(*, topic: str | None, broker: int | None, brokers: bool, logger: int | None) -> ConfigResource:
    from odradek.client.models import ConfigResource

    if [topic is not None, broker is not None, brokers, logger is not None].count(True) != 1:
        raise click.UsageError("Name one topic or broker: --topic, --broker, --brokers or --broker-logger.")
    if logger is not None:
        return ConfigResource.broker_logger(logger)
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


def _value(value: str | None, entry: ConfigEntry) -> str:
    if value is None:
        return "(hidden)" if entry.sensitive else ""
    return value


def _source(source: int) -> str:
    return _SOURCES.get(source, str(source))
