"""`odradek acl`: list, add and remove access rules. The options are those of `kafka-acls.sh`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from odradek.cli.shared import client_settings, connection_options, echo_json, output_option, reporting_errors, run
from odradek.cli.tables import Column, Table, show

if TYPE_CHECKING:
    from odradek.security.acls.model import AclBinding, AclOperation, PatternType, ResourceType
    from odradek.security.principals import Principal

_F = TypeVar("_F", bound=Callable[..., Any])

_OPERATIONS: Final = (
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "CreateTokens",
    "DescribeTokens",
)
_OF_PRODUCERS: Final = {"TOPIC": ("Write", "Describe", "Create"), "TRANSACTIONAL_ID": ("Write", "Describe")}
_OF_CONSUMERS: Final = {"TOPIC": ("Read", "Describe"), "GROUP": ("Read",)}
_KINDS: Final = {
    "topics": ("--topic", "TOPIC"),
    "groups": ("--group", "GROUP"),
    "transactional_ids": ("--transactional-id", "TRANSACTIONAL_ID"),
    "tokens": ("--delegation-token", "DELEGATION_TOKEN"),
    "users": ("--user-principal", "USER"),
}
"""The options that name resources, by parameter, and the types of these resources."""

_COLUMNS: Final = tuple(map(Column, ("resource", "name", "pattern", "principal", "host", "operation", "permission")))


def _resource_options(command: _F) -> _F:
    command = click.option("--cluster", is_flag=True, help="The cluster itself.")(command)
    for parameter, (option, kind) in reversed(_KINDS.items()):
        text = f"Name of a {kind.lower().replace('_', ' ')}, or '*' for all; repeatable."
        command = click.option(option, parameter, multiple=True, metavar="NAME", help=text)(command)
    return command


def _operation_option(command: _F) -> _F:
    return click.option(
        "--operation",
        "operations",
        multiple=True,
        metavar="OPERATION",
        type=click.Choice(_OPERATIONS, case_sensitive=False),
        help=f"One of {', '.join(_OPERATIONS)}; repeatable.",
    )(command)


@click.group()
def acl() -> None:
    """Show and change who may do what (access rules, ACLs).

    \b
    Example:
      odradek acl add --allow-principal User:alice --operation Read --operation Write --topic orders
      odradek acl add --allow-principal User:bob --consumer --topic orders --group billing
      odradek acl list --topic orders
    """


@acl.command("list")
@_resource_options
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(["any", "match", "literal", "prefixed"], case_sensitive=False),
    default="any",
    show_default=True,
    help="`match` selects all rules that apply to the resource, such as those of a prefix of its name.",
)
@click.option("--principal", "principals", multiple=True, metavar="TYPE:NAME", help="Rules of a principal; repeatable.")
@connection_options
@output_option
def list_rules(*, pattern: str, principals: Sequence[str], bootstrap: str, as_json: bool, **resources: Any) -> None:
    """List access rules: all, or those of some resources and principals.

    \b
    Example:
      odradek acl list
      odradek acl list --topic orders --resource-pattern-type match
    """
    from odradek.client.admin import Admin
    from odradek.security.acls.model import AclFilter, PatternType, ResourceType
    from odradek.security.principals import parse_principal

    with reporting_errors():
        who: Sequence[Principal | None] = [parse_principal(text) for text in principals] or [None]
    every: list[tuple[ResourceType, str | None]] = [(ResourceType.ANY, None)]
    selections = [
        AclFilter(kind, name, PatternType[pattern.upper()], principal)
        for kind, name in _named(**resources) or every
        for principal in who
    ]

    async def work() -> list[AclBinding]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            found = [rule for selection in selections for rule in await admin.describe_acls(selection)]
            return sorted(dict.fromkeys(found))

    _print(run(work()), as_json=as_json)


@acl.command()
@click.option("--allow-principal", "allowed", multiple=True, metavar="TYPE:NAME", help="Who may; repeatable.")
@click.option("--deny-principal", "denied", multiple=True, metavar="TYPE:NAME", help="Who may not; repeatable.")
@click.option("--allow-host", "allowed_hosts", multiple=True, metavar="ADDRESS", help="From where; default: anywhere.")
@click.option("--deny-host", "denied_hosts", multiple=True, metavar="ADDRESS", help="From where; default: anywhere.")
@_operation_option
@click.option("--producer", is_flag=True, help="What a producer needs for --topic and --transactional-id.")
@click.option("--consumer", is_flag=True, help="What a consumer needs for --topic and --group.")
@click.option(
    "--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster, for brokers before 2.8."
)
@_resource_options
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(["literal", "prefixed"], case_sensitive=False),
    default="literal",
    show_default=True,
    help="`prefixed`: the names are prefixes.",
)
@connection_options
@output_option
def add(*, bootstrap: str, as_json: bool, **options: Any) -> None:
    """Add access rules. Rules that exist already stay as they are.

    \b
    Example:
      odradek acl add --allow-principal User:alice --producer --topic orders- --resource-pattern-type prefixed
      odradek acl add --deny-principal User:eve --operation All --topic '*' --deny-host 10.0.0.7
    """
    from odradek.client.admin import Admin

    with reporting_errors():
        rules = _rules(**options)

    async def work() -> None:
        async with Admin(client_settings(bootstrap, {})) as admin:
            await admin.create_acls(rules)

    run(work())
    _print(rules, as_json=as_json)


@acl.command()
@click.option("--allow-principal", "allowed", multiple=True, metavar="TYPE:NAME", help="Rules that allow; repeatable.")
@click.option("--deny-principal", "denied", multiple=True, metavar="TYPE:NAME", help="Rules that deny; repeatable.")
@_operation_option
@_resource_options
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(["any", "match", "literal", "prefixed"], case_sensitive=False),
    default="literal",
    show_default=True,
    help="Which patterns with the name are meant.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@connection_options
@output_option
def remove(
    *,
    allowed: Sequence[str],
    denied: Sequence[str],
    operations: Sequence[str],
    pattern: str,
    yes: bool,
    bootstrap: str,
    as_json: bool,
    **resources: Any,
) -> None:
    """Remove access rules: all of the named resources, or those of some principals and operations.

    \b
    Example:
      odradek acl remove --topic orders --allow-principal User:alice --operation Write
      odradek acl remove --topic orders --yes
    """
    from odradek.client.admin import Admin
    from odradek.security.acls.model import AclFilter, AclOperation, AclPermission, PatternType
    from odradek.security.principals import parse_principal

    named = _required_resources(**resources)
    with reporting_errors():
        who: list[tuple[AclPermission, Principal | None]] = [
            *((AclPermission.ALLOW, parse_principal(text)) for text in allowed),
            *((AclPermission.DENY, parse_principal(text)) for text in denied),
        ]
    selections = [
        AclFilter(kind, name, PatternType[pattern.upper()], principal, None, operation, permission)
        for kind, name in named
        for permission, principal in who or [(AclPermission.ANY, None)]
        for operation in [_operation(text) for text in operations] or [AclOperation.ANY]
    ]
    if not yes:
        shown = ", ".join(f"{kind.name.lower()} {name}" for kind, name in named)
        click.confirm(f"Remove the selected access rules of {shown}?", abort=True, err=True)

    async def work() -> list[AclBinding]:
        async with Admin(client_settings(bootstrap, {})) as admin:
            return sorted(await admin.delete_acls(selections))

    _print(run(work()), as_json=as_json)


def _named(*, cluster: bool, **names: Sequence[str]) -> list[tuple[ResourceType, str]]:
    """Return the resources that the options name."""
    from odradek.security.acls.model import CLUSTER_NAME, ResourceType

    found = [(ResourceType[_KINDS[kind][1]], name) for kind, of_kind in names.items() for name in of_kind]
    return [*found, (ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else found


def _required_resources(**resources: Any) -> list[tuple[ResourceType, str]]:
    named = _named(**resources)
    if not named:
        options = ", ".join(option for option, _ in _KINDS.values())
        raise click.UsageError(f"Name at least one resource: {options} or --cluster.")
    return named


def _rules(
    *,
    allowed: Sequence[str],
    denied: Sequence[str],
    allowed_hosts: Sequence[str],
    denied_hosts: Sequence[str],
    operations: Sequence[str],
    producer: bool,
    consumer: bool,
    idempotent: bool,
    pattern: str,
    **resources: Any,
) -> list[AclBinding]:
    """Return the rules that the options of `add` describe. Raises `ConfigError` and `click.UsageError`."""
    from odradek.security.acls.model import (
        ANY_HOST,
        AclBinding,
        AclPermission,
        AclRule,
        PatternType,
        ResourcePattern,
        ResourceType,
    )
    from odradek.security.principals import parse_principal

    if not (allowed or denied):
        raise click.UsageError("Say for whom the rule is: --allow-principal or --deny-principal.")
    who = [
        (permission, parse_principal(text), host)
        for permission, texts, hosts in (
            (AclPermission.ALLOW, allowed, allowed_hosts),
            (AclPermission.DENY, denied, denied_hosts),
        )
        for text in texts
        for host in hosts or (ANY_HOST,)
    ]
    named = _required_resources(**resources)
    wanted = [
        (kind, name, operation)
        for kind, name in named
        for operation in _operations_on(kind, [_operation(text) for text in operations], producer, consumer)
    ]
    if producer and idempotent:
        wanted += [(kind, name, _operation("IdempotentWrite")) for kind, name in _named(cluster=True)]
    if not wanted:
        raise click.UsageError("Say what the rule is about: --operation, --producer or --consumer.")
    return [
        AclBinding(
            # The cluster has one name, so a prefix of it would be meaningless.
            ResourcePattern(
                kind, name, PatternType.LITERAL if kind is ResourceType.CLUSTER else PatternType[pattern.upper()]
            ),
            AclRule(principal, permission, operation, host),
        )
        for kind, name, operation in wanted
        for permission, principal, host in who
    ]


def _operations_on(
    kind: ResourceType, given: Iterable[AclOperation], producer: bool, consumer: bool
) -> Iterable[AclOperation]:
    """Return the operations of a rule for a resource, as `kafka-acls.sh` does for producers and consumers."""
    names: list[str] = []
    if producer:
        names += _OF_PRODUCERS.get(kind.name, ())
    if consumer:
        names += _OF_CONSUMERS.get(kind.name, ())
    return dict.fromkeys([*given, *map(_operation, names)])


def _operation(text: str) -> AclOperation:
    from odradek.security.acls.model import AclOperation

    return next(each for each in AclOperation if each.name.replace("_", "").lower() == text.lower())


def _text(pattern: ResourceType | PatternType | Any) -> str:
    return "".join(word.capitalize() for word in pattern.name.split("_"))


def _print(rules: Sequence[AclBinding], *, as_json: bool) -> None:
    if as_json:
        echo_json(
            [
                {
                    "resource_type": resource.type.name,
                    "resource_name": resource.name,
                    "pattern_type": resource.pattern.name,
                    "principal": str(rule.principal),
                    "host": rule.host,
                    "operation": rule.operation.name,
                    "permission": rule.permission.name,
                }
                for resource, rule in rules
            ]
        )
        return
    rows = [
        (
            _text(resource.type),
            resource.name,
            resource.pattern.name.lower(),
            str(rule.principal),
            rule.host,
            _text(rule.operation),
            _text(rule.permission),
        )
        for resource, rule in rules
    ]
    show([Table("", _COLUMNS, tuple(rows), empty="No access rules.")])
