"""`odradek quota`: what clients may use of each broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from odradek.cli.shared import (
    client_settings,
    connection_options,
    echo_json,
    output_option,
    pairs,
    reporting_errors,
    run,
)
from odradek.cli.tables import Column, Table, show

if TYPE_CHECKING:
    from odradek.security.quotas.quota_model import QuotaEntity, QuotaKind

_F = TypeVar("_F", bound=Callable[..., Any])

_TYPES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""The options that name entities, and the types of these entities."""
_HELP: Final = {"user": ("A user.", "NAME"), "client_id": ("A client id.", "ID"), "ip": ("An IP address.", "ADDRESS")}


def _entity_options(command: _F) -> _F:
    for parameter, kind in reversed(_TYPES.items()):
        text, metavar = _HELP[parameter]
        others = f"Everyone whose {kind.replace('-', ' ')} has no quota."
        command = click.option(f"--{kind}-default", f"{parameter}_default", is_flag=True, help=others)(command)
        command = click.option(f"--{kind}", parameter, metavar=metavar, help=text)(command)
    return command


@click.group()
def quota() -> None:
    """Show and change what clients may use of each broker.

    Quotas: producer_byte_rate and consumer_byte_rate in bytes per second, request_percentage of the time of one thread,
    controller_mutation_rate in partitions per second, and connection_creation_rate per second and IP address.

    \b
    Example:
      odradek quota set --user alice producer_byte_rate=1048576
      odradek quota list
    """


@quota.command("list")
@_entity_options
@connection_options
@output_option
def list_quotas(*, bootstrap: str, as_json: bool, **entity: Any) -> None:
    """List quotas: all, or those of a user, a client id, both, or an address.

    \b
    Example:
      odradek quota list --user alice
    """
    from odradek.client.admin import Admin
    from odradek.security.quotas.quota_filters import QuotaFilter

    names = _names(**entity)
    if names:
        wanted = _entity(names)
        selection = QuotaFilter(wanted.user, wanted.client_id, wanted.ip)
    else:
        selection = QuotaFilter()

    async def work() -> Mapping[QuotaEntity, Mapping[QuotaKind, float]]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return await admin.describe_client_quotas(selection)

    _print(run(work()), as_json=as_json)


@quota.command("set")
@click.argument("values", nargs=-1, required=True, metavar="QUOTA=VALUE…")
@_entity_options
@connection_options
@output_option
def set_quotas(*, values: tuple[str, ...], bootstrap: str, as_json: bool, **entity: Any) -> None:
    """Set quotas of a user, a client id, both, or an address. They apply at once, to each broker separately.

    \b
    Example:
      odradek quota set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
      odradek quota set --client-id-default request_percentage=20
    """
    from odradek.security.quotas.quota_model import parse_quota

    with reporting_errors():
        kinds = {_kind(name): text for name, text in pairs(values).items()}
        changes = {kind: parse_quota(kind, text) for kind, text in kinds.items()}
        _change(bootstrap, entity, changes, as_json=as_json)


@quota.command()
@click.argument("names", nargs=-1, required=True, metavar="QUOTA…")
@_entity_options
@connection_options
@output_option
def remove(*, names: tuple[str, ...], bootstrap: str, as_json: bool, **entity: Any) -> None:
    """Remove quotas of a user, a client id, both, or an address.

    \b
    Example:
      odradek quota remove --user alice producer_byte_rate
    """
    _change(bootstrap, entity, {_kind(name): None for name in names}, as_json=as_json)


def _names(**options: Any) -> list[tuple[str, str | None]]:
    """Return type and name of the entity that the options name; None for a default."""
    found: list[tuple[str, str | None]] = []
    for parameter, kind in _TYPES.items():
        name, is_default = options[parameter], options[f"{parameter}_default"]
        if name is not None and is_default:
            raise click.UsageError(f"Give either --{kind} or --{kind}-default.")
        if name is not None or is_default:
            found.append((kind, name))
    return found


def _entity(names: list[tuple[str, str | None]]) -> QuotaEntity:
    from odradek.security.quotas.quota_filters import parse_entity

    with reporting_errors():
        return parse_entity(names)


def _kind(name: str) -> QuotaKind:
    from odradek.security.quotas.quota_model import QuotaKind

    if name not in {kind.value for kind in QuotaKind}:
        raise click.UsageError(f"{name!r} is not a quota: use {', '.join(QuotaKind)}.")
    return QuotaKind(name)


def _change(
    bootstrap: str, options: Mapping[str, Any], changes: Mapping[QuotaKind, float | None], *, as_json: bool
) -> None:
    from odradek.client.admin import Admin

    names = _names(**options)
    if not names:
        raise click.UsageError("Say for whom the quota is: --user, --client-id, both, --ip, or a default.")
    entity = _entity(names)

    async def work() -> Mapping[QuotaEntity, Mapping[QuotaKind, float]]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            await admin.alter_client_quotas({entity: changes})
            return {entity: {kind: value for kind, value in changes.items() if value is not None}}

    changed = run(work())
    if as_json or any(changed.values()):
        _print(changed, as_json=as_json)
    else:
        click.echo("The quotas were removed.")


def _print(quotas: Mapping[QuotaEntity, Mapping[QuotaKind, float]], *, as_json: bool) -> None:
    from odradek.security.quotas.quota_filters import entity_parts

    if as_json:
        echo_json(
            [
                {"entity": dict(entity_parts(entity)), "quotas": {kind.value: value for kind, value in values.items()}}
                for entity, values in quotas.items()
            ]
        )
        return
    rows = [
        (
            ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity_parts(entity)),
            kind.value,
            f"{value:,.15g}",
        )
        for entity, values in quotas.items()
        for kind, value in values.items()
    ]
    columns = (Column("entity"), Column("quota"), Column("value", right=True))
    show([Table("", columns, tuple(sorted(rows)), empty="No quotas.")])
