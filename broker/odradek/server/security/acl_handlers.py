"""Handlers of DescribeAcls, CreateAcls and DeleteAcls (KIP-140, KIP-290), as those of Kafka's `AclApis`.

Rules are read from memory and changed in ZooKeeper. An answer to a change comes when this broker has it; the others get
the notification. Each creation, and each filter of a deletion, has a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from odradek.base.errors import NONE, ConfigError, InvalidRequestError, OdradekError, SecurityDisabledError
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsRequestAclCreation,
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DescribeAclsRequest,
)
from odradek.security.acls.model import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclRule,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principals import Principal, parse_principal
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.failures import wire_error
from odradek.zk.acls import AccessRules

PATTERN_TYPES_SINCE: Final = 1
"""First versions with pattern types (KIP-290). Before, all patterns are literal."""


class AclHandlers:
    """Handlers that show and change the access rules."""

    def __init__(self, rules: AccessRules | None) -> None:
        """`rules` is None without an authorizer: all requests get SECURITY_DISABLED."""
        self._rules = rules

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(DescribeAclsRequest, self.describe_acls),
                route(CreateAclsRequest, self.create_acls),
                route(DeleteAclsRequest, self.delete_acls),
            ]
        )

    def _required(self) -> AccessRules:
        if self._rules is None:
            raise SecurityDisabledError("This broker has no authorizer: set authorizer.class.name.")
        return self._rules

    async def describe_acls(self, context: RequestContext, request: DescribeAclsRequest) -> Message:
        """Handle DescribeAcls: return the rules that a filter selects, by pattern."""
        rules = self._required()
        found: dict[ResourcePattern, list[AclRule]] = {}
        selected = _filter(request, context.api_version)
        for binding in () if selected is None else rules.index.bindings(selected):
            found.setdefault(binding.resource, []).append(binding.rule)
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "error_message": None,
            "resources": [
                {
                    "resource_type": pattern.type,
                    "resource_name": pattern.name,
                    "pattern_type": pattern.pattern,
                    "acls": [_rule_row(rule) for rule in those],
                }
                for pattern, those in found.items()
            ],
        }

    async def create_acls(self, context: RequestContext, request: CreateAclsRequest) -> Message:
        """Handle CreateAcls. A rule that exists already is a success."""
        rules = self._required()
        results: list[OdradekError | None] = [None] * len(request.creations)
        by_pattern: dict[ResourcePattern, list[tuple[int, AclRule]]] = {}
        for number, creation in enumerate(request.creations):
            try:
                binding = _binding(creation)
            except InvalidRequestError as error:
                results[number] = error
            else:
                by_pattern.setdefault(binding.resource, []).append((number, binding.rule))

        async def add(resource: ResourcePattern, numbered: Iterable[tuple[int, AclRule]]) -> None:
            try:
                await rules.change(resource, add=[rule for _, rule in numbered])
            except OdradekError as error:
                for number, _ in numbered:
                    results[number] = error

        await asyncio.gather(*(add(resource, numbered) for resource, numbered in by_pattern.items()))
        return {"throttle_time_ms": 0, "results": [_outcome(error) for error in results]}

    async def delete_acls(self, context: RequestContext, request: DeleteAclsRequest) -> Message:
        """Handle DeleteAcls. A rule that several filters select is in the result of the first of them."""
        rules = self._required()
        invalid: dict[int, InvalidRequestError] = {}
        chosen: dict[AclBinding, int] = {}
        for number, item in enumerate(request.filters):
            try:
                selected = _filter(item, context.api_version)
            except InvalidRequestError as error:
                invalid[number] = error
                continue
            for binding in () if selected is None else rules.index.bindings(selected):
                chosen.setdefault(binding, number)
        failed: dict[ResourcePattern, OdradekError] = {}
        by_pattern: dict[ResourcePattern, list[AclRule]] = {}
        for binding in chosen:
            by_pattern.setdefault(binding.resource, []).append(binding.rule)

        async def remove(resource: ResourcePattern, those: Iterable[AclRule]) -> None:
            try:
                await rules.change(resource, remove=[*those])
            except OdradekError as error:
                failed[resource] = error

        await asyncio.gather(*(remove(resource, those) for resource, those in by_pattern.items()))
        matching: list[list[Message]] = [[] for _ in request.filters]
        for binding, number in chosen.items():
            matching[number].append({**_outcome(failed.get(binding.resource)), **_binding_row(binding)})
        return {
            "throttle_time_ms": 0,
            "filter_results": [
                {**_outcome(invalid.get(number)), "matching_acls": those} for number, those in enumerate(matching)
            ],
        }


def _outcome(error: OdradekError | None) -> Message:
    if error is None:
        return {"error_code": NONE, "error_message": None}
    return {"error_code": wire_error(error).code, "error_message": str(wire_error(error))}


def _rule_row(rule: AclRule) -> Message:
    return {
        "principal": str(rule.principal),
        "host": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission,
    }


def _binding_row(binding: AclBinding) -> Message:
    resource = binding.resource
    return {
        "resource_type": resource.type,
        "resource_name": resource.name,
        "pattern_type": resource.pattern,
        **_rule_row(binding.rule),
    }


_Code = TypeVar("_Code", ResourceType, PatternType, AclOperation, AclPermission)


def _known(codes: type[_Code], number: int) -> _Code:
    """Return a code of the protocol. Raises `InvalidRequestError` if it is unknown."""
    try:
        code = codes(number)
    except ValueError:
        code = codes.UNKNOWN
    if code is codes.UNKNOWN:
        raise InvalidRequestError(f"{number} is no {codes.__name__} that this broker knows.")
    return code


def _filter(item: DescribeAclsRequest | DeleteAclsRequestFilter, version: int) -> AclFilter | None:
    """Return the filter; None if it can select nothing, because no rule has such a principal.

    Raises `InvalidRequestError`.
    """
    kind, pattern = _known(ResourceType, item.resource_type_filter), _known(PatternType, item.pattern_type_filter)
    operation, permission = _known(AclOperation, item.operation), _known(AclPermission, item.permission_type)
    if version < PATTERN_TYPES_SINCE:
        pattern = PatternType.LITERAL
    principal: Principal | None = None
    if item.principal_filter is not None:
        try:
            principal = parse_principal(item.principal_filter)
        except ConfigError:
            return None
    return AclFilter(kind, item.resource_name_filter, pattern, principal, item.host_filter, operation, permission)


def _binding(item: CreateAclsRequestAclCreation) -> AclBinding:
    """Return the rule to create. Raises `InvalidRequestError`."""
    kind, pattern = _known(ResourceType, item.resource_type), _known(PatternType, item.resource_pattern_type)
    operation, permission = _known(AclOperation, item.operation), _known(AclPermission, item.permission_type)
    if kind is ResourceType.ANY or pattern in (PatternType.ANY, PatternType.MATCH):
        raise InvalidRequestError("A rule needs a type of resource, and the pattern type LITERAL or PREFIXED.")
    if operation is AclOperation.ANY or permission is AclPermission.ANY:
        raise InvalidRequestError("A rule needs an operation, and the permission ALLOW or DENY.")
    name = item.resource_name
    if not name:
        raise InvalidRequestError("The name of the resource is empty.")
    if "/" in name:
        raise InvalidRequestError("The name of a resource must not contain '/'.")
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only resource of type CLUSTER is {CLUSTER_NAME}.")
    if not item.host:
        raise InvalidRequestError("The host is empty: '*' means every host.")
    try:
        principal = parse_principal(item.principal)
    except ConfigError as error:
        raise InvalidRequestError(str(error)) from error
    return AclBinding(ResourcePattern(kind, name, pattern), AclRule(principal, permission, operation, item.host))
